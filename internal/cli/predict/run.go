package predict

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"warmroute/internal/cli"
	"warmroute/internal/feed/cachelayout"
)

// ErrBadLine is returned by Run when at least one line could not be used.
var ErrBadLine = errors.New("some lines could not be used")

// MaxLine is the longest line in bytes: a few million token ids.
const MaxLine = 64 << 20

// failed is the answer to a line that cannot be used.
type failed struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// Run answers every query of in on out, in order, and flushes whenever it would wait
// for input. l has the cache groups of the model, if they are known. It returns
// ErrBadLine, or the first error of in or out.
func Run(in io.Reader, out io.Writer, l *cachelayout.Layout) (err error) {
	p, err := New(l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	r, w := bufio.NewReaderSize(in, 1<<16), bufio.NewWriter(out)
	answers := json.NewEncoder(w)
	bad := false
	var text []byte
	for n := 1; ; n++ {
		var long bool
		var end error
		text, long, end = cli.ReadLine(r, text[:0], MaxLine)
		if end != nil && !errors.Is(end, io.EOF) {
			return errors.Join(fmt.Errorf("read line %d: %w", n, end), w.Flush())
		}
		if long || len(bytes.TrimSpace(text)) > 0 {
			if !p.answer(answers, n, text, long) {
				bad = true
			}
		}
		if errors.Is(end, io.EOF) || r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		if errors.Is(end, io.EOF) {
			break
		}
	}
	if bad {
		return ErrBadLine
	}
	return nil
}

// answer writes the answer to one line, and reports whether the line could be used. The
// writer keeps its first error for the flush.
func (p *Predictor) answer(to *json.Encoder, n int, text []byte, long bool) bool {
	a, err := (*Answer)(nil), error(nil)
	if long {
		err = fmt.Errorf("longer than %d bytes", MaxLine)
	} else {
		a, err = p.Take(text)
	}
	if err != nil {
		_ = to.Encode(failed{n, err.Error()})
		return false
	}
	if a != nil {
		_ = to.Encode(a)
	}
	return true
}
