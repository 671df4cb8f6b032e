package epoch

import (
	"slices"
	"testing"
)

// A thing is passed on when every lookup has ended that started before it was
// put away, and not before.
func TestLimboWaitsForTheLookupsThatCouldSee(t *testing.T) {
	var c Clock
	c.Init()
	var l Limbo[string]
	l.Init(&c)
	var freed []string
	reclaim := func(want ...string) {
		t.Helper()
		freed = freed[:0]
		l.Reclaim(func(s string) { freed = append(freed, s) })
		if !slices.Equal(freed, want) {
			t.Fatalf("%v reclaimed, want %v", freed, want)
		}
	}
	first := c.Enter()
	l.Put("a")
	second := c.Enter()
	l.Put("b")
	reclaim()
	first.Leave()
	reclaim("a")
	third := c.Enter() // started after b went
	reclaim()
	second.Leave()
	reclaim("b")
	third.Leave()
	l.Put("c")
	if l.Len() != 1 {
		t.Fatalf("%d kept, want 1", l.Len())
	}
	reclaim("c")
	reclaim()
}

// More lookups at once than a block has readers all count.
func TestEveryLookupCounts(t *testing.T) {
	var c Clock
	c.Init()
	var all []*Reader
	for range 3 * readersPerBlock {
		all = append(all, c.Enter())
		c.Retire()
	}
	for i, r := range all {
		if got := c.Oldest(); got != uint64(i+1) {
			t.Fatalf("the oldest epoch is %d, want %d", got, i+1)
		}
		r.Leave()
	}
	if c.Oldest() != c.now.Load() {
		t.Errorf("the oldest epoch is %d with no lookup in epoch %d", c.Oldest(), c.now.Load())
	}
}

// A lookup that runs alone counts, whatever reader it has.
func TestTheFirstLookupCounts(t *testing.T) {
	for range 3 * readersPerBlock {
		var c Clock
		c.Init()
		c.Enter()
		if c.Retire(); c.Oldest() != 1 {
			t.Fatalf("the oldest epoch is %d while a lookup of epoch 1 runs", c.Oldest())
		}
	}
}
