package load

import (
	"maps"
	"slices"
	"testing"
	"time"

	"warmroute/index"
)

func TestAccounts(t *testing.T) {
	r := newRig(t)
	rank := index.Holder{Replica: one.Replica, Rank: 1}
	if r.Find(one) != nil {
		t.Error("an account that nobody opened")
	}
	for id, h := range []index.Holder{one, rank, two} {
		r.Of(h).SetID(index.HolderID(id))
	}
	if a := r.Of(one); r.Find(one) != a || r.Of(one) != a || r.Of(rank) == a || r.Of(two) == a {
		t.Error("an account is one object for each KV cache")
	}
	if all := maps.Collect(r.All()); len(all) != 3 || all[rank] != r.Of(rank) {
		t.Errorf("all: %v", all)
	}
	old := r.Of(one)
	c := r.put(one, Terms{Expected: 1e9, Tokens: 5, Sentinel: 7})
	if gone := slices.Sorted(slices.Values(r.Drop(one.Replica))); !slices.Equal(gone, []index.HolderID{0, 1}) {
		t.Errorf("dropped %v", gone)
	}
	if r.Find(one) != nil || r.Find(rank) != nil || r.Find(two) == nil || r.Of(one) == old {
		t.Error("the accounts of the dropped replica are there, or another's are not")
	}
	c.Release() // which no longer affects any load
	r.want(one, sums{})
	if NewLedger(nil).now == nil || time.Since(NewLedger(nil).now()) > time.Hour {
		t.Error("the default clock is not time.Now")
	}
}

// TestApplied: the last block of an event that stores it in the GPU's cache is the
// first token of all requests that wait for it, of that KV cache alone.
func TestApplied(t *testing.T) {
	r := newRig(t)
	a, same := r.put(one, Terms{Sentinel: 7}), r.put(one, Terms{Sentinel: 7})
	other, elsewhere := r.put(one, Terms{Sentinel: 8}), r.put(two, Terms{Sentinel: 7})
	none := func(what string, b index.Batch) {
		t.Helper()
		b.Holder = one
		r.Applied(&b)
		if !a.Awaiting() || !same.Awaiting() {
			t.Fatalf("%s counts as the first token", what)
		}
	}
	removed := event(index.TierGPU, 7)
	removed.Kind = index.Removed
	middle := event(index.TierGPU, 9)
	middle.Content[0] = 7
	none("an empty batch", index.Batch{})
	none("an event without blocks", index.Batch{Events: []index.Event{{Kind: index.Stored}}})
	none("a removal", index.Batch{Events: []index.Event{removed}})
	none("a block in memory", index.Batch{Events: []index.Event{event(index.TierCPU, 7)}})
	none("a block before the last", index.Batch{Events: []index.Event{middle}})
	r.stored(index.Holder{Replica: "10.0.0.9:8000"}, 7) // of which nothing is in flight
	r.stored(one, 99, 7)
	if a.Awaiting() || same.Awaiting() || !other.Awaiting() || !elsewhere.Awaiting() {
		t.Error("the block ends the wait of those, and only those, that wait for it there")
	}
	if r.Of(one).Sentinels() != 1 || r.Of(two).Sentinels() != 1 {
		t.Errorf("%d and %d first tokens are waited for", r.Of(one).Sentinels(), r.Of(two).Sentinels())
	}
	byHash := event(index.TierGPU, 8)
	byHash.Hashes[1], byHash.Content = 8, nil
	r.Applied(&index.Batch{Holder: one, Events: []index.Event{byHash}})
	if other.Awaiting() {
		t.Error("where there is no content, the engine's hash is the sentinel")
	}
	r.stored(two, 7)
	if elsewhere.Awaiting() {
		t.Error("the other KV cache's first token")
	}
}

// TestSentinelsOverflow: requests beyond the number of sentinels that can be awaited go
// by their time.
func TestSentinelsOverflow(t *testing.T) {
	r := newRig(t)
	var charges []*Charge
	for range sentinelWindow + 1 {
		charges = append(charges, r.put(one, Terms{Sentinel: 7, Due: r.nanos() + int64(time.Second)}))
	}
	last := charges[sentinelWindow]
	if r.Of(one).Sentinels() != sentinelWindow || last.Terms().Sentinel != 0 || charges[0].Terms().Sentinel != 7 {
		t.Fatalf("%d first tokens are waited for; the last's sentinel is %d", r.Of(one).Sentinels(), last.Terms().Sentinel)
	}
	r.stored(one, 7)
	if charges[sentinelWindow-1].Awaiting() || !last.Awaiting() || r.Of(one).Sentinels() != 0 {
		t.Error("the event ends the wait of those with a slot")
	}
	if n := r.Of(one).sentinels.waiting.Load(); n != 0 {
		t.Errorf("%d in slots by the count", n)
	}
	last.Release()
	if again := r.put(one, Terms{Sentinel: 7}); again.Terms().Sentinel != 7 {
		t.Error("a slot that was given up is not used again")
	}
}

// TestSettle: first tokens that no event reports count as come when they are due,
// or when that of a later request was seen.
func TestSettle(t *testing.T) {
	r := newRig(t)
	due := func(d time.Duration, sentinel uint64) *Charge {
		return r.put(one, Terms{Expected: 1e9, Due: r.nanos() + int64(d), Sentinel: sentinel})
	}
	first, lost, silent := due(time.Second, 5), due(time.Hour, 4), due(time.Hour, 0)
	seen, later := due(time.Hour, 7), due(time.Hour, 0)
	waiting := func(want ...*Charge) {
		t.Helper()
		r.state(one)
		for i, c := range []*Charge{first, lost, silent, seen, later} {
			if c.Awaiting() != slices.Contains(want, c) {
				t.Errorf("request %d waits: %v", i+1, c.Awaiting())
			}
		}
		if a := r.Of(one); a.Awaiting() != len(want) || !near(a.Pending(), float64(len(want))) {
			t.Errorf("%d wait with %g s, want %d", a.Awaiting(), a.Pending(), len(want))
		}
	}
	waiting(first, lost, silent, seen, later)
	r.wait(time.Second - 1)
	waiting(first, lost, silent, seen, later)
	r.wait(1)
	waiting(lost, silent, seen, later)
	r.stored(one, 7)
	waiting(lost, later) // the silent one was sent before the seen one
	r.wait(2 * time.Hour)
	r.Settle() // as a router without decisions does
	if lost.Awaiting() || later.Awaiting() || len(r.Of(one).queue) != 0 {
		t.Errorf("long due, and still awaited; %d in the queue", len(r.Of(one).queue))
	}
	over, next := due(time.Hour, 0), due(time.Second, 0)
	over.Release()
	r.wait(time.Second)
	r.Settle()
	if next.Awaiting() {
		t.Error("due, and still awaited behind one that is over")
	}
}
