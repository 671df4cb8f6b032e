package tokens

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
	"warmroute/render/testkit/must"
	"warmroute/render/work"
)

// looks is a context that ends when it has been looked at a number of times.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// late is a context past its deadline whose timer has not run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// working is a Local with one model whose template goes over each content character by
// character, and the reasons of its refusals.
func working(t *testing.T, limits work.Limits) (*Local, map[string]int) {
	t.Helper()
	why := map[string]int{}
	l := NewLocal(LocalOptions{
		TrustUnverified: ^openai.Features(0), SampleEvery: -1,
		Work:      limits,
		Endpoints: func(string) []Endpoint { return []Endpoint{{Version: "0.32.0", MaxLen: 1 << 20}} },
		Hooks:     Hooks{Refused: func(_, reason string) { why[reason]++ }},
	})
	must.Do(t, l.Load("m", bytesModel(t,
		"{% for m in messages %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}", Flags{ContentFormat: "string"})))
	l.CheckAll(t.Context())
	return l, why
}

func ask(t *testing.T, l *Local, ctx context.Context, body string) error {
	t.Helper()
	_, err := l.Tokens(ctx, parse(t, openai.Chat, body), someModel)
	return err
}

const saying = `{"model":"m","messages":[{"role":"user","content":%q}]}`

// The work of a request ends with its budget, its client and its deadline, and each end
// has a reason of its own.
func TestWorkEnds(t *testing.T) {
	long := fmt.Sprintf(saying, strings.Repeat("a", 1<<18))
	for _, c := range []struct {
		why    string
		limits work.Limits
		ctx    context.Context
		err    error
	}{
		{"budget", work.Limits{Steps: 100_000, StepsPerByte: 1}, t.Context(), ErrNone},
		{"memory", work.Limits{Memory: 100_000, MemoryPerByte: 1}, t.Context(), ErrNone},
		{"cancelled", work.Limits{}, &looks{t.Context(), 3}, context.Canceled},
		{"too_slow", work.Limits{}, late{t.Context()}, context.DeadlineExceeded},
	} {
		l, why := working(t, c.limits)
		if err := ask(t, l, c.ctx, long); !errors.Is(err, c.err) || why[c.why] != 1 {
			t.Errorf("%s: error %v, reasons %v", c.why, err, why)
		}
		if looks, ok := c.ctx.(*looks); ok && looks.left != -1 {
			t.Errorf("the work went on for %d looks after its end", -1-looks.left)
		}
		if err := ask(t, l, t.Context(), fmt.Sprintf(saying, "hello")); err != nil {
			t.Errorf("%s: a small request afterwards: %v", c.why, err)
		}
	}
}
