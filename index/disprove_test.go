package index

import (
	"testing"
	"time"
)

// TestWhatIsDisprovedIsNotCredited: the first block that a request did not find, and those behind
// it, count no more, until it is stored again; unless an event since the request explains it. A
// copy that was stored meanwhile stays. The same holds where another rank has stored the blocks first, by
// other hashes; removals find the blocks that are left.
func TestWhatIsDisprovedIsNotCredited(t *testing.T) {
	b := Holder{Replica: b.Replica, Rank: 1} // another seed
	for name, tc := range map[string]struct {
		events func(x *fixture, inc uint64) // between the request and its answer
		depth  int
		gone   bool
		want   int32 // blocks reported afterwards
	}{
		"nothing happened": {nil, 3, true, 3},
		"the first":        {nil, 0, true, 0},
		"the last":         {nil, 9, true, 9},
		"never reported":   {nil, 12, false, 10},
		"removed and stored again": {func(x *fixture, inc uint64) {
			x.send(a, inc, x.f.removed(a, TierGPU, 9))
			x.send(a, inc, x.f.stored(a, TierGPU, x.f.path(9)))
		}, 9, false, 10},
		"stored once more":          {func(x *fixture, inc uint64) { x.send(a, inc, x.f.stored(a, TierGPU, x.f.path(9))) }, 3, false, 10},
		"another block was removed": {func(x *fixture, inc uint64) { x.send(a, inc, x.f.removed(a, TierGPU, 9)) }, 3, true, 3},
	} {
		for _, order := range [][]Holder{{a, b}, {b, a}} {
			x := newFixture(t, Options{})
			x.f.seeds = 2
			inc := x.Begin(a)
			lives := map[Holder]uint64{a: inc, b: x.Begin(b)}
			for _, h := range order {
				x.send(h, lives[h], x.f.stored(h, TierGPU, x.f.path(9)))
			}
			x.clock.t = x.clock.t.Add(time.Second)
			sent := x.clock.t
			x.clock.t = x.clock.t.Add(time.Second)
			if tc.events != nil {
				tc.events(x, inc)
			}
			if gone := x.Disprove(x.ID(a), x.f.scope, x.f.keys(x.f.path(20)), tc.depth, sent); gone != tc.gone {
				t.Errorf("%s: gone: %v", name, gone)
			}
			if got := x.match(a).Blocks; got != tc.want {
				t.Errorf("%s: %d blocks, want %d", name, got, tc.want)
			}
			x.wantReported(b, 10)
			if err := x.check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if tc.gone {
				x.send(a, inc, x.f.removed(a, TierGPU, 0))
				x.wantReported(a, 0)
				x.send(a, inc, x.f.stored(a, TierGPU, x.f.path(9)))
				x.wantReported(a, 10)
			}
		}
	}
}
