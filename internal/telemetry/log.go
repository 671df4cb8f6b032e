package telemetry

import (
	"context"
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

// LogOptions are the level and the format of the log.
type LogOptions struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json lines
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

// LogDial sets a logger's level and format, also at run time.
type LogDial struct {
	level slog.LevelVar
	json  atomic.Bool
}

// Set puts o into force.
func (d *LogDial) Set(o LogOptions) error {
	level, err := o.level()
	if err != nil {
		return err
	}
	d.level.Set(level)
	d.json.Store(o.Format == "json")
	return nil
}

// Level returns the lowest level that is logged.
func (d *LogDial) Level() slog.Level { return d.level.Level() }

// Limited returns a logger to w that follows d, one Write per line, and whose lines l bounds.
func (d *LogDial) Limited(w io.Writer, l *LogLimiter) *slog.Logger {
	return l.Logger(d.handler(w))
}

func (d *LogDial) handler(w io.Writer) slog.Handler {
	o := &slog.HandlerOptions{Level: &d.level, ReplaceAttr: shorten}
	return formats{d, slog.NewTextHandler(w, o), slog.NewJSONHandler(w, o)}
}

// formats is one of two handlers, by the dial's format.
type formats struct {
	dial       *LogDial
	text, json slog.Handler
}

func (h formats) Enabled(_ context.Context, level slog.Level) bool { return level >= h.dial.Level() }

func (h formats) Handle(ctx context.Context, r slog.Record) error {
	if h.dial.json.Load() {
		return h.json.Handle(ctx, r)
	}
	return h.text.Handle(ctx, r)
}

func (h formats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return formats{h.dial, h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)}
}

func (h formats) WithGroup(name string) slog.Handler {
	return formats{h.dial, h.text.WithGroup(name), h.json.WithGroup(name)}
}

const (
	// queuedLines bounds the lines that wait for a slow log: at 200 B a line, 1 MB.
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

// Lost returns the number of lines that were not written, none by a nil writer.
func (l *LogWriter) Lost() uint64 {
	if l == nil {
		return 0
	}
	return l.lost.Load()
}

// Close writes the queued lines, for at most wait, and drops later ones. It reports
// whether everything was flushed; false leaves the goroutine behind, blocked in a
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
