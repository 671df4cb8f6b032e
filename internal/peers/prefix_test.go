package peers

import (
	"reflect"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/prefixhash"
)

// TestEveryKindOfPrefixArrives whole, in the order it was sent.
func TestEveryKindOfPrefixArrives(t *testing.T) {
	w := newMesh(t, 2)
	w.settle()
	keys := []prefixhash.Key{1, 1 << 63}
	sent := []decision.Prefix{
		{Statement: decision.Observed, Model: "m", Tenant: "blue", Holder: replica(1), Keys: keys, Lasts: time.Second},
		{Statement: decision.Ended, Model: "m", Holder: replica(1), Keys: keys},
		{Statement: decision.Observed, Model: "m", Tenant: "blue", Holder: replica(2), Keys: keys, Rest: 700, Tokens: 900, Paid: time.Second},
		{Statement: decision.Ended, Model: "m", Tenant: "blue", Holder: replica(2), Keys: keys[1:], Rest: 700},
		{Statement: decision.Invalidated, Holder: replica(3), Keys: []prefixhash.Key{}},
		{Statement: decision.Waiting, Model: "m", Keys: []prefixhash.Key{}, Lasts: time.Minute},
		{Statement: decision.Kept, Model: "m", Keys: keys[1:], Tokens: 900, Lasts: time.Minute},
	}
	sent[0].Holder.Rank = 3
	for _, p := range sent {
		w.nodes[0].outbox.Send(p)
	}
	w.settle()
	got := w.nodes[1].fleet.prefixes
	if len(got) != len(sent) {
		t.Fatalf("%d of %d prefixes arrived", len(got), len(sent))
	}
	for i := range sent {
		sent[i].From = "r0"
		if !reflect.DeepEqual(got[i], sent[i]) {
			t.Errorf("sent %+v, received %+v", sent[i], got[i])
		}
	}
}
