package expiry

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/offheap"
	"warmroute/prefixhash"
)

// fixture is a table with a clock of its own.
type fixture struct {
	*Table
	shared Shared
	clock  epoch.Clock
	pool   offheap.Pool
	now    time.Time
	gone   map[int32]bool // holders that cannot join
	joined []int32
	wakes  int
}

func newFixture(t *testing.T, most int) *fixture {
	f := &fixture{now: time.Unix(1_700_000_000, 0), gone: map[int32]bool{}}
	f.clock.Init()
	f.pool.Init(&f.clock)
	f.shared = Shared{Clock: &f.clock, Pool: &f.pool, Seed: 7, Now: func() time.Time { return f.now }, Start: f.now.UnixNano(), Max: most,
		Join: func(h int32, _ *Table) bool { f.joined = append(f.joined, h); return !f.gone[h] },
		Wake: func() { f.wakes++ }}
	f.Table = NewTable(&f.shared)
	t.Cleanup(func() { f.Close(); f.pool.Close() })
	return f
}

// at is a deadline in so many ticks.
func (f *fixture) at(ticks int) int64 { return f.now.UnixNano() + int64(ticks)<<tickShift }

// has reports whether a lookup of now sees a holder's entry of a key.
func (f *fixture) has(holder int32, key prefixhash.Key) bool {
	r := f.clock.Enter()
	defer r.Leave()
	id := f.Get(hashtable.KeyOf(uint64(key)), f.shared.Tick())
	slot, ok := f.Slots().Of(holder)
	return ok && id != 0 && f.Sets().Has(id, slot)
}

func keys(from, to int) (k []prefixhash.Key) {
	for i := from; i < to; i++ {
		k = append(k, prefixhash.Key(uint64(i)*hashtable.Golden)) // key 0 too
	}
	return k
}

// TestEntriesAreTheModels: random operations leave the same entries as in a map of
// deadlines.
func TestEntriesAreTheModels(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := newFixture(t, 1<<20)
		all := keys(0, 60)
		want := map[int32]map[prefixhash.Key]int64{}
		for step := range 600 {
			h := int32(rng.IntN(6))
			if want[h] == nil {
				want[h] = map[prefixhash.Key]int64{}
			}
			from := rng.IntN(len(all))
			some := all[from : from+rng.IntN(len(all)-from)+1]
			switch op := rng.IntN(20); {
			case op < 11:
				until := f.at(rng.IntN(40))
				f.Set(h, some, until)
				for _, k := range some {
					want[h][k] = max(want[h][k], until)
				}
			case op < 13:
				f.End(h, some)
				for _, k := range some {
					delete(want[h], k)
				}
			case op < 15:
				f.End(h, some[:1])
				delete(want[h], some[0])
			case op < 16:
				f.Kill(h)
				delete(want, h)
			default:
				f.now = f.now.Add(time.Duration(rng.IntN(4)) << tickShift)
				f.Expire(f.now.UnixNano())
			}
			for h := range int32(6) {
				for _, k := range all {
					if has, wanted := f.has(h, k), want[h][k] > f.now.UnixNano(); has != wanted {
						t.Fatalf("seed %d, step %d: holder %d has key %x: %v, want %v", seed, step, h, k, has, wanted)
					}
				}
			}
		}
		f.now = f.now.Add(time.Hour)
		f.Expire(f.now.UnixNano())
		c := f.Counts()
		if c.Builds = 0; c != (Counts{}) || f.Len() != 0 || f.shared.Len() != 0 || f.Next() != 0 {
			t.Errorf("seed %d: %+v, %d entries, %d of all tables, next deadline %d", seed, c, f.Len(), f.shared.Len(), f.Next())
		}
	}
}

// TestTheBoundEndsTheEarliest: beyond Max, the entry with the earliest deadline ends at
// once.
func TestTheBoundEndsTheEarliest(t *testing.T) {
	f := newFixture(t, 100)
	f.Set(1, keys(0, 50), f.at(10))
	f.Set(2, keys(0, 50), f.at(5))
	f.Set(3, keys(50, 80), f.at(8))
	for h, want := range map[int32]bool{1: true, 2: false} {
		if got := f.has(h, keys(0, 50)[7]); got != want {
			t.Errorf("holder %d has its entries: %v", h, got)
		}
	}
	if n := f.Len(); n != 80 {
		t.Errorf("%d entries, want 80", n)
	}
}

// TestHoldersThatAreNotKnown have no entries, and their slots serve others.
func TestHoldersThatAreNotKnown(t *testing.T) {
	f := newFixture(t, 100)
	f.gone[4] = true
	for range 5000 { // more than there are slots
		f.Set(4, keys(0, 2), f.at(9))
	}
	f.Set(5, keys(0, 2), f.at(9))
	if f.has(4, keys(0, 1)[0]) || !f.has(5, keys(0, 1)[0]) || f.Len() != 2 {
		t.Errorf("%d entries", f.Len())
	}
}

// TestWakesForAnEarlierDeadline and not for a later one.
func TestWakesForAnEarlierDeadline(t *testing.T) {
	f := newFixture(t, 100)
	for _, one := range []struct{ ticks, wakes int }{{9, 1}, {12, 1}, {4, 2}} {
		f.Set(1, keys(one.ticks, one.ticks+1), f.at(one.ticks))
		if f.wakes != one.wakes {
			t.Errorf("%d wakes after a deadline in %d ticks, want %d", f.wakes, one.ticks, one.wakes)
		}
	}
	if f.Next() != f.at(4) {
		t.Errorf("the next deadline is %d, want %d", f.Next(), f.at(4))
	}
	f.Set(1, keys(1, 2), f.at(0)) // over already
	if f.has(1, keys(1, 2)[0]) || f.Len() != 3 {
		t.Errorf("%d entries, want 3", f.Len())
	}
}

// TestOperationsOfManyGoroutines are all done.
func TestOperationsOfManyGoroutines(t *testing.T) {
	f := newFixture(t, 1<<20)
	var joins sync.Mutex
	f.shared.Join = func(int32, *Table) bool { joins.Lock(); defer joins.Unlock(); return true }
	var wg sync.WaitGroup
	for h := range int32(8) {
		wg.Go(func() {
			for i := range 200 {
				f.Set(h, keys(i, i+5), f.at(100+i))
				f.has(h, keys(i, i+1)[0])
				f.End(h, keys(i, i+4))
			}
		})
	}
	wg.Wait()
	if n := f.Len(); n != 8 {
		t.Errorf("%d entries, want the last key of each holder", n)
	}
}
