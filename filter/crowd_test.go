package filter

import (
	"context"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"warmroute/internal/decision"
)

// size returns the number of requests that count.
func (c *crowd) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counted
}

// TestBodiesThatNeverComeTakeNoPlace: any number of clients that send no more than the
// beginning of a body take the places of MaxStreams for BodyWait, in every mode. Their own
// requests count again when their bodies are complete.
func TestBodiesThatNeverComeTakeNoPlace(t *testing.T) {
	const most = 8
	for _, mode := range []modev3.ProcessingMode_BodySendMode{buffered, partial, duplex} {
		now := time.Unix(1_700_000_000, 0)
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		b.router.o.Now = func() time.Time { return now }
		s := NewServer(b.router, ServerOptions{MaxStreams: most, BodyWait: time.Second})
		enter := func() *stream {
			st := s.stream(mode, new(hint))
			st.overLimit = !s.crowd.enter(&st.place, st.o, now)
			st.step(context.Background(), headers(mode, "POST", chatPath, false), nil)
			return st
		}
		finish := func(st *stream) decision.Reason {
			st.step(context.Background(), body(chat, true), nil)
			return st.d.Reason
		}
		var idle []*stream
		for range 5 * most {
			idle = append(idle, enter())
		}
		if got := enter(); !got.overLimit {
			t.Errorf("%v: nobody is refused while the bodies may still come", mode)
		}
		now = now.Add(time.Second)
		honest := enter()
		if got := finish(honest); got != decision.ReasonCold {
			t.Errorf("%v: after body_wait: %q", mode, got)
		}
		for i := range most {
			want := decision.ReasonWarm // the same prompt is in flight
			if i == most-1 {
				want = decision.ReasonStreams
			}
			if got := finish(idle[i]); got != want {
				t.Errorf("%v: late body %d: %q, want %q", mode, i, got, want)
			}
		}
		for _, st := range append(idle, honest) {
			st.close()
			st.close()
		}
		if n := s.crowd.size(); n != 0 || s.crowd.ends.after != &s.crowd.ends || s.crowd.ends.before != &s.crowd.ends {
			t.Errorf("%v: %d requests count when all have ended", mode, n)
		}
	}
}
