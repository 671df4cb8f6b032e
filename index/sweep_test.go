package index

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Sweeps that are started at once run one after the other: what a dead holder
// leaves is given back once, so no two holders get the same slot.
func TestSweepsAtOnceGiveASlotBackOnce(t *testing.T) {
	x := newFixture(t, Options{})
	for round := range 60 {
		holders := 4 + 8*(round%2) // more than the slots that were given back
		for i := range holders {
			h := Holder{Replica: fmt.Sprint(round%2, "-", i)}
			x.send(h, x.Begin(h), x.f.stored(h, TierGPU, x.all()[:8+i]), x.f.stored(h, TierCPU, x.all()[:8]), x.f.stored(h, TierStorage, x.all()[:8]))
		}
		sh, seen := x.allShards()[0], map[int]Holder{}
		for i := range holders {
			h := Holder{Replica: fmt.Sprint(round%2, "-", i)}
			slot, ok := sh.slots.Of(int32(x.ID(h)))
			if other, twice := seen[slot]; !ok || twice {
				t.Fatalf("round %d: %v and %v have slot %d (%v)", round, h, other, slot, ok)
			}
			seen[slot] = h
		}
		for i := range holders {
			x.Remove(fmt.Sprint(round%2, "-", i))
		}
		sh.mu.Lock() // they meet here, unless one waits for the other before
		var sweeps sync.WaitGroup
		for i := range 4 {
			if i%2 == 0 {
				sweeps.Go(x.Sweep)
			} else {
				sweeps.Go(x.sweepSoon)
			}
		}
		for start := time.Now(); time.Since(start) < 3*time.Millisecond; { // the lock is fair then
			runtime.Gosched()
		}
		sh.mu.Unlock()
		sweeps.Wait()
		if dead := len(sh.slots.Dead()); dead != 0 {
			t.Fatalf("round %d: %d slots are dead after a sweep", round, dead)
		}
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}
