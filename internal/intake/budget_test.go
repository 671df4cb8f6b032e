package intake

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// TestAnswersAreBounded: each by its limit and all together, and what they took is given back,
// however they end.
func TestAnswersAreBounded(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		from  io.Reader
		limit int64
		taken int64 // by other answers
		size  int
		err   error
	}{
		"whole":                {bytes.NewReader(make([]byte, 100_000)), 100_000, 0, 100_000, nil},
		"in pieces":            {iotest.HalfReader(bytes.NewReader(make([]byte, 100_000))), 1 << 20, 0, 100_000, nil},
		"empty":                {bytes.NewReader(nil), 10, 0, 0, nil},
		"one byte too long":    {bytes.NewReader(make([]byte, 100_001)), 100_000, 0, 0, ErrTooLong},
		"broken off":           {io.MultiReader(bytes.NewReader(make([]byte, 50_000)), iotest.ErrReader(broken)), 100_000, 0, 0, broken},
		"no room":              {bytes.NewReader(nil), 100_000, Most, 0, ErrCrowded},
		"no room for the rest": {bytes.NewReader(make([]byte, 100_000)), 100_000, Most - first, 0, ErrCrowded},
	} {
		var b Budget
		b.taken.Take(tt.taken, Most)
		answer, err := b.Read(tt.from, tt.limit)
		if len(answer) != tt.size || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d bytes, %v", name, len(answer), err)
		}
		if n := b.taken.Used(); err == nil && n < tt.taken+int64(len(answer)) || n > Most {
			t.Errorf("%s: %d bytes count", name, n)
		}
		if err == nil {
			b.Return(answer)
		}
		if n := b.taken.Used(); n != tt.taken {
			t.Errorf("%s: %d bytes stay counted", name, n-tt.taken)
		}
	}
}
