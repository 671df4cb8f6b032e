package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// LogOptions says what is logged and how.
type LogOptions struct {
	Level  string `yaml:"level"`                    // how much: debug, info, warn or error
	Format string `yaml:"format" applies:"restart"` // form of a line: text or json
}

// Validate returns an error that names the field and its value.
func (o LogOptions) Validate() error {
	if _, err := o.level(); err != nil {
		return err
	}
	switch o.Format {
	case "", "text", "json":
		return nil
	}
	return fmt.Errorf("format: %q is neither text nor json", o.Format)
}

func (o LogOptions) level() (slog.Level, error) {
	switch strings.ToLower(o.Level) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("level: %q is none of debug, info, warn, error", o.Level)
}

// NewLogger returns a logger of that level and format that writes to w, one
// Write per line.
func NewLogger(o LogOptions, w io.Writer) (*slog.Logger, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	var level slog.LevelVar
	if err := o.SetLevel(&level); err != nil {
		return nil, err
	}
	return newLogger(o, w, &level), nil
}

// NewLeveled is NewLogger with a level that can be set later.
func NewLeveled(o LogOptions, w io.Writer, level *slog.LevelVar) (*slog.Logger, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return newLogger(o, w, level), o.SetLevel(level)
}

// SetLevel sets v to the level of o.
func (o LogOptions) SetLevel(v *slog.LevelVar) error {
	level, err := o.level()
	if err == nil {
		v.Set(level)
	}
	return err
}

func newLogger(o LogOptions, w io.Writer, level slog.Leveler) *slog.Logger {
	h := &slog.HandlerOptions{Level: level}
	if o.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}

const (
	// queuedLines is what may wait for a slow log: at 200 B a line, 1 MB.
	queuedLines = 4096
	// retainedLine bounds the buffers that are kept for reuse.
	retainedLine = 4 << 10
)

// LogWriter is an io.Writer for a logger that never waits and never fails. Each
// Write is one line; lines are written in order by a goroutine that Close ends.
type LogWriter struct {
	to    io.Writer
	lines chan *[]byte
	done  chan struct{}
	lost  atomic.Uint64
	pool  sync.Pool

	mu     sync.RWMutex // held while a line is queued; Close takes it alone
	closed bool
}

// NewLogWriter starts a writer to w, e.g. os.Stderr.
func NewLogWriter(w io.Writer) *LogWriter {
	l := &LogWriter{to: w, lines: make(chan *[]byte, queuedLines), done: make(chan struct{})}
	l.pool.New = func() any { return new([]byte) }
	go l.run()
	return l
}

// Write queues a copy of line. It always returns len(line), nil.
func (l *LogWriter) Write(line []byte) (int, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		l.lost.Add(1)
		return len(line), nil
	}
	b := l.pool.Get().(*[]byte)
	*b = append((*b)[:0], line...)
	select {
	case l.lines <- b:
	default:
		l.lost.Add(1)
		l.put(b)
	}
	return len(line), nil
}

func (l *LogWriter) run() {
	defer close(l.done)
	for b := range l.lines {
		if _, err := l.to.Write(*b); err != nil {
			l.lost.Add(1)
		}
		l.put(b)
	}
}

func (l *LogWriter) put(b *[]byte) {
	if cap(*b) <= retainedLine {
		l.pool.Put(b)
	}
}

// Lost is the number of lines that were not written.
func (l *LogWriter) Lost() uint64 { return l.lost.Load() }

// Close writes what is queued, for at most wait, and drops later lines. It says
// whether everything was flushed; false leaves the goroutine behind, stuck in a
// write that nothing can end.
func (l *LogWriter) Close(wait time.Duration) bool {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(wait):
	}
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// SurviveClosedPipe makes a write to a standard output or standard error whose
// reader is gone an error instead of the end of the process. Call it once in
// main.
func SurviveClosedPipe() { signal.Ignore(syscall.SIGPIPE) }
