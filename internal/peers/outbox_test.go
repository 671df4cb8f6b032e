package peers

import (
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/prefixhash"
)

// TestWhatWaitsIsBounded: where nothing can be sent, prefixes beyond a bound are
// counted and not sent.
func TestWhatWaitsIsBounded(t *testing.T) {
	o := NewOutbox()
	for range waitingPrefixes + 10 {
		o.Send(decision.Prefix{Statement: decision.Observed, Model: "m", Keys: []prefixhash.Key{1}})
	}
	if n := o.Dropped(); n != 10 {
		t.Errorf("%d prefixes of %d were dropped", n, waitingPrefixes+10)
	}
	o = NewOutbox()
	long := make([]prefixhash.Key, waitingKeys/2)
	for range 3 {
		o.Send(decision.Prefix{Statement: decision.Observed, Model: "m", Keys: long})
	}
	if n := o.Dropped(); n != 1 {
		t.Errorf("%d prefixes of half the room were dropped, of three", n)
	}
	if all, _, _ := o.take(outgoing{}); len(all.prefixes) != 2 || len(all.keys) != waitingKeys {
		t.Errorf("%d prefixes with %d keys wait", len(all.prefixes), len(all.keys))
	}
}

// TestAllocTelling: a message is written into the memory of those before it.
func TestAllocTelling(t *testing.T) {
	w := newMesh(t, 1)
	w.settle()
	n, to, keys := w.nodes[0], replica(1), make([]prefixhash.Key, 64)
	tell := func() {
		w.now = w.now.Add(time.Microsecond)
		n.outbox.Send(decision.Prefix{Statement: decision.Observed, Model: "m", Holder: to, Keys: keys, Lasts: time.Second})
		if n.m.Write(w.now) == nil {
			t.Error("nothing was told")
		}
	}
	tell()
	tell() // two buffers take turns
	if got := testing.AllocsPerRun(100, tell); got > 0 {
		t.Errorf("%v allocations a message", got)
	}
}
