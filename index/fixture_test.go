package index

import (
	"testing"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// fixture is a small index with one chain of blocks and a clock.
type fixture struct {
	*Index
	t     *testing.T
	clock *clock
	f     *forest
}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	c := &clock{time.Unix(1_700_000_000, 0)}
	o.Now = c.now
	x := New(o)
	t.Cleanup(x.Close)
	f := &forest{kids: map[int][]int{}, scope: Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}, seeds: 1}
	key := prefixhash.TokenRoot("m", prefixhash.LoRA{})
	for i := range 64 {
		key = prefixhash.Link(key, prefixhash.Content(i+1))
		f.parent, f.content, f.key = append(f.parent, i-1), append(f.content, prefixhash.Content(i+1)), append(f.key, key)
	}
	return &fixture{x, t, c, f}
}

func (x *fixture) send(h Holder, inc uint64, evs ...Event) Result {
	x.t.Helper()
	return must.Get(x.Apply(&Batch{Holder: h, Incarnation: inc, Events: evs}))(x.t)
}

func (x *fixture) all() []int {
	n := make([]int, len(x.f.parent))
	for i := range n {
		n[i] = i
	}
	return n
}

func (x *fixture) match(h Holder) Match {
	x.t.Helper()
	for _, m := range x.Lookup(nil, x.f.scope, x.f.key) {
		if m.ID == x.ID(h) {
			return m
		}
	}
	return Match{}
}

// sound expects an index that is as its comments promise.
func (x *fixture) sound() {
	x.t.Helper()
	if err := x.check(); err != nil {
		x.t.Error(err)
	}
}

func (x *fixture) wantReported(h Holder, want int32) {
	x.t.Helper()
	if got := x.match(h).Blocks; got != want {
		x.t.Errorf("%v matches %d blocks, want %d", h, got, want)
	}
}

// lend stores keys of a holder until a time. It begins a holder that has not begun.
func lend(t testing.TB, x *Index, s Scope, h Holder, keys []prefixhash.Key, until time.Time) {
	t.Helper()
	inc, begun := x.Resume(h)
	if !begun {
		inc = x.Begin(h)
	}
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: inc, Full: true, Events: []Event{lent(s, keys, until)}}))(t)
}

// lent is stored until a time.
func lent(s Scope, keys []prefixhash.Key, until time.Time) Event {
	ev := Event{Kind: Stored, Scope: s, Until: until}
	for _, key := range keys {
		ev.Hashes = append(ev.Hashes, uint64(key))
	}
	return ev
}

var a, b = Holder{Replica: "10.0.0.1:8000"}, Holder{Replica: "10.0.0.2:8000"}
