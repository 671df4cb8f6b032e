package intake

import (
	"cmp"
	"errors"
	"io"

	"warmroute/internal/bound"
)

// Most is the default of Budget.Most.
const Most = 256 << 20

// first is the memory with which an answer begins; it doubles.
const first = 32 << 10

// The reasons, besides the reader's own, why Read has no answer.
var (
	ErrTooLong = errors.New("the answer is longer than its limit")
	ErrCrowded = errors.New("too many bytes of answers are being read")
)

// Budget counts the memory of answers.
type Budget struct {
	Most  int64 // of all answers that are being read; 0 = Most
	taken bound.Pool
}

// Read reads an answer of at most limit bytes. The caller returns it when it needs it no more.
func (b *Budget) Read(from io.Reader, limit int64) ([]byte, error) {
	var answer []byte
	fail := func(err error) ([]byte, error) {
		b.Return(answer)
		return nil, err
	}
	for {
		if len(answer) == cap(answer) {
			if int64(len(answer)) > limit {
				return fail(ErrTooLong)
			}
			size := min(max(first, 2*int64(cap(answer))), limit+1)
			if !b.taken.Take(size, cmp.Or(b.Most, Most)) {
				return fail(ErrCrowded)
			}
			longer := append(make([]byte, 0, size), answer...)
			b.Return(answer)
			answer = longer
		}
		n, err := from.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		switch {
		case int64(len(answer)) > limit:
			return fail(ErrTooLong)
		case errors.Is(err, io.EOF):
			return answer, nil
		case err != nil:
			return fail(err)
		}
	}
}

// Return gives back the memory of an answer of Read, which nothing may use any more.
func (b *Budget) Return(answer []byte) { b.taken.Give(int64(cap(answer))) }
