package bound

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestPool: never more than the limit is in use, however many take at once, and one that asks
// for too much refuses no other.
func TestPool(t *testing.T) {
	var p Pool
	if !p.Take(7, 10) || p.Take(4, 10) || p.Take(math.MaxInt32, 10) || !p.Take(3, 10) || p.Used() != 10 {
		t.Fatalf("%d in use", p.Used())
	}
	p.Give(10)
	const most = 5
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				if p.Take(2, most) {
					if n := p.Used(); n > most {
						t.Errorf("%d in use", n)
					}
					p.Give(2)
				}
			}
		})
	}
	all.Wait()
	if p.Used() != 0 {
		t.Errorf("%d in use after all was given back", p.Used())
	}
}

// TestRate: so many at once, then one for each period, however long nothing happened before.
func TestRate(t *testing.T) {
	var r Rate
	now := time.Unix(1e9, 0)
	take := func(want int) {
		t.Helper()
		n := 0
		for r.Take(now, time.Second, 3) {
			n++
		}
		if n != want {
			t.Errorf("%d, want %d", n, want)
		}
	}
	take(3)
	now = now.Add(999 * time.Millisecond)
	take(0)
	now = now.Add(time.Millisecond)
	take(1)
	now = now.Add(2 * time.Second)
	take(2)
	now = now.Add(time.Hour)
	take(3)
	if got := r.Add(2.5, now, time.Second, 100); got != 5.5 {
		t.Errorf("%g are not forgotten, want 5.5", got)
	}
	now = now.Add(5 * time.Second)
	if got := r.Add(1e9, now, time.Second, 100); got != 100 {
		t.Errorf("%g are not forgotten, want all that count", got)
	}
	now = now.Add(98 * time.Second)
	take(1)
	if n := testing.AllocsPerRun(100, func() { r.Take(now, time.Second, 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNotes(t *testing.T) {
	all := []string{"a", "b", "c"}
	if got := Notes(all, 3, "letters"); !slices.Equal(got, all) {
		t.Errorf("%q", got)
	}
	if got := Notes(all, 1, "letters"); !slices.Equal(got, []string{"a", "2 more letters"}) || all[1] != "b" {
		t.Errorf("%q of %q", got, all)
	}
}
