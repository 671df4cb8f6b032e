package tracefile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
)

// The default size of a file and number of files.
const (
	DefaultBytes = 64 << 20
	DefaultFiles = 4
)

// MinBytes is the least size of a file: the longest line fits.
const MinBytes = 1 << 20

// Options configures a Writer.
type Options struct {
	Path  string
	Bytes int // a file of this size is rotated; default DefaultBytes
	Files int // files that are kept: Path, Path.1 and so on, the oldest last; default DefaultFiles
	// Fleet returns the replicas; nil: the file has none.
	Fleet func() []Replica
	// Prefills returns what the replicas have prefilled since the last call; nil: the file has none.
	Prefills func() []Prefilled
	Now      func() time.Time // default index.Now
	Log      *slog.Logger     // nil: no log

	create func(path string) (file, int64, error) // opens or makes a file to append to, and returns its size; tests replace it
}

func (o Options) withDefaults() Options {
	o.Bytes, o.Files = cmp.Or(o.Bytes, DefaultBytes), cmp.Or(o.Files, DefaultFiles)
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.create == nil {
		o.create = create
	}
	return o
}

// file is the part of an os.File that a Writer uses.
type file interface {
	io.WriteCloser
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// create opens a regular file for appending, for this writer alone. The owner alone can read a new one.
func create(path string) (file, int64, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if e := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(e, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s is another router's: give each a file of its own", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// metrics count lines.
type metrics struct {
	written prometheus.Counter
	busy    prometheus.Counter // lost: the queue was full
	disk    prometheus.Counter // lost: the file could not be written
}

func newMetrics(reg prometheus.Registerer) metrics {
	lines := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_trace_file_lines_total", Help: "Lines for the trace file: written, or lost: busy (the queue was full), disk."}, []string{"result"})
	reg.MustRegister(lines)
	return metrics{written: lines.WithLabelValues("written"), busy: lines.WithLabelValues("busy"), disk: lines.WithLabelValues("disk")}
}
