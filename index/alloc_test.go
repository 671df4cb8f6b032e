package index

import (
	"fmt"
	"testing"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
	"warmroute/render/testkit/race"
)

// turnover is a holder at its capacity: each batch stores a prompt's next blocks
// and removes as many of its oldest, leaf first.
type turnover struct {
	x     *Index
	batch *Batch
	ring  []uint64 // hashes in the order they were stored
	next  uint64
	per   int
}

func newTurnover(x *Index, h Holder, s Scope, capacity, per int) *turnover {
	w := &turnover{x: x, per: per, next: 1, batch: &Batch{Holder: h, Incarnation: x.Begin(h), Events: []Event{
		{Kind: Stored, Scope: s, Hashes: make([]uint64, per), Content: make([]prefixhash.Content, per)},
		{Kind: Removed, Hashes: make([]uint64, per)},
	}}}
	w.ring = make([]uint64, capacity)
	return w
}

// step applies one batch of two events.
func (w *turnover) step() (Result, error) {
	for i := range w.per {
		at := w.next % uint64(len(w.ring))
		v := w.next*hashtable.Golden | 1
		w.batch.Events[1].Hashes[w.per-1-i] = w.ring[at]
		w.ring[at] = v
		w.batch.Events[0].Hashes[i], w.batch.Events[0].Content[i] = v, prefixhash.Content(v)
		w.next++
	}
	return w.x.Apply(w.batch)
}

// A fleet at its capacity costs the collector nothing: an event stores or removes
// blocks in memory that others have left.
func TestSteadyIngestAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, per := range []int{1, 16, 100} {
		x := New(Options{})
		s := Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}
		var fleet []*turnover
		for i := range 4 {
			fleet = append(fleet, newTurnover(x, Holder{Replica: fmt.Sprint("r", i)}, s, 400*per, per))
		}
		all := func() {
			for _, w := range fleet {
				res, err := w.step()
				if err != nil || res.Stored != per || res.Dropped != 0 {
					t.Fatalf("%+v, %v", res, err)
				}
			}
		}
		for range 4000 { // full, and all arrays grown
			all()
		}
		allocs := testing.AllocsPerRun(2000, all) / float64(2*len(fleet))
		t.Logf("%d blocks an event: %.3f allocations an event", per, allocs)
		if allocs >= 0.01 { // the queue of resting entries may grow once more
			t.Errorf("%d blocks an event: %.3f allocations an event, want none", per, allocs)
		}
		if err := x.check(); err != nil {
			t.Error(err)
		}
		x.Close()
	}
}

// Blocks that an event names from the first to the last of a stretch leave no hole
// behind, whatever else it names.
func TestRisingRemovalsLeaveNoHole(t *testing.T) {
	for _, first := range []int{40, 62, 63} {
		x := newFixture(t, Options{})
		inc := x.Begin(a)
		x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
		rising := x.all()[first:]
		if res := x.send(a, inc, x.f.removed(a, TierGPU, rising...)); res.Removed != len(rising) || res.Unknown != 0 {
			t.Errorf("%+v, want %d removed", res, len(rising))
		}
		x.wantReported(a, int32(first))
		x.sound()
	}
}
