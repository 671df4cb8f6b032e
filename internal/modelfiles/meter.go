package modelfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"
)

// A Hub downloads DefaultBytes and mostFiles, fifty models of Gemma's size, as long as the process
// runs.
const (
	DefaultBytes = 2 << 30
	mostFiles    = 1000
)

// noRoomPause is how long nothing is downloaded after the disk was full.
const noRoomPause = 10 * time.Minute

var (
	// ErrPaused is matched by the error of a Fetch that downloads nothing, because an
	// earlier one reached a limit or the end of the disk.
	ErrPaused = errors.New("downloads are paused")
	// ErrLimit is matched by the error of a Fetch that reached a limit.
	ErrLimit = errors.New("the limit of downloads is reached")
	// ErrNoRoom is matched by the error of a Fetch that filled the disk.
	ErrNoRoom = errors.New("the disk of the Hugging Face cache is full")
	// ErrNotWritable is matched by the error of a Fetch that may not write the cache.
	ErrNotWritable = errors.New("the Hugging Face cache cannot be written")
)

// errRefused ends a download that must not be taken up again.
var errRefused = errors.New("refused")

// meter counts a Hub's downloads.
type meter struct {
	mu    sync.Mutex // guards the fields below
	now   func() time.Time
	most  int64 // bytes
	bytes int64
	files int
	why   error     // of the pause
	until time.Time // its end; zero: it lasts until the limit changes
}

// Limit changes the most bytes that are downloaded, and ends a pause.
func (h *Hub) Limit(bytes int64) {
	h.meter.mu.Lock()
	defer h.meter.mu.Unlock()
	h.meter.most, h.meter.why = bytes, nil
}

// Downloaded returns how many bytes were downloaded, of complete files or not.
func (h *Hub) Downloaded() int64 {
	h.meter.mu.Lock()
	defer h.meter.mu.Unlock()
	return h.meter.bytes
}

// Paused returns the reason why nothing is downloaded now; nil: downloads are allowed.
func (h *Hub) Paused() error {
	m := &h.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == nil || !m.until.IsZero() && !m.now().Before(m.until) {
		m.why = nil
		return nil
	}
	if m.until.IsZero() {
		return fmt.Errorf("%w: %w", ErrPaused, m.why)
	}
	return fmt.Errorf("%w until %s: %w", ErrPaused, m.until.UTC().Format(time.TimeOnly), m.why)
}

// file counts a download that begins.
func (m *meter) file() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files >= mostFiles {
		m.why, m.until = fmt.Errorf("%w: %d files", ErrLimit, m.files), time.Time{}
		return m.why
	}
	m.files++
	return nil
}

// metered counts the bytes that are read, and ends at the limit.
type metered struct {
	*meter
	from io.Reader
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += int64(n)
	if m.bytes > m.most {
		m.why, m.until = fmt.Errorf("%w: %d MiB (tokens.download_mib)", ErrLimit, m.most>>20), time.Time{}
		return n, m.why
	}
	return n, err
}

// noted begins a pause if a download has filled the disk, and returns its error with
// that cause, or with what to do about a cache that cannot be written.
func (h *Hub) noted(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; %w (%s): set HF_HOME to a folder that the router can write", err, ErrNotWritable, h.cache)
	}
	if !noRoom(err) {
		return err
	}
	m := &h.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.why, m.until = fmt.Errorf("%w: %s", ErrNoRoom, h.cache), m.now().Add(noRoomPause)
	return fmt.Errorf("%w; the next download begins after %v: %w", m.why, noRoomPause, err)
}

// noRoom reports whether the disk, a quota or the process's limit of a file's size ended
// a write.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// final reports whether an error forbids continuing the downloaded part.
func final(err error) bool {
	return noRoom(err) || errors.Is(err, ErrLimit) || errors.Is(err, errRefused)
}
