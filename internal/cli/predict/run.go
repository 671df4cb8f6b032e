package predict

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"warmroute/internal/cli/jsonlines"
	"warmroute/internal/feed/cachelayout"
)

// ErrBadLine is returned by Run when at least one line could not be used.
var ErrBadLine = errors.New("some lines could not be used")

// failed is the answer to a line that cannot be used.
type failed struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// Run answers every query of in on out, in order, and flushes whenever it would wait
// for input. l has the cache groups of the model, if they are known. It returns
// ErrBadLine, or the first error of in or out.
func Run(in io.Reader, out io.Writer, l *cachelayout.Layout) error {
	p, err := New(l)
	if err != nil {
		return err
	}
	defer p.Close()
	w := bufio.NewWriter(out)
	answers := json.NewEncoder(w)
	bad := false
	if err := jsonlines.Each(in, w, func(n int, line []byte, long bool) {
		bad = !p.answer(answers, n, line, long) || bad
	}); err != nil {
		return err
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
		err = fmt.Errorf("longer than %d bytes", jsonlines.MaxLine)
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
