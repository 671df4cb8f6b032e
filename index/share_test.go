package index

import (
	"fmt"
	"testing"

	"warmroute/prefixhash"
)

// TestAReplicaLeavesScopesToOthers: a replica with made-up adapters and block sizes takes
// half of the scopes at most, however many ranks it has; the others have their share of
// the rest, and the replica can take scopes again that it has given back.
func TestAReplicaLeavesScopesToOthers(t *testing.T) {
	x := newFixture(t, Options{MaxScopes: 400})
	store := func(h Holder, inc uint64, name string) bool {
		ev := x.f.stored(h, TierGPU, x.all())
		ev.Scope.LoRA = prefixhash.LoRA{Set: true, Name: name}
		stored := x.send(h, inc, ev).Stored > 0
		x.send(h, inc, x.f.removed(h, TierGPU, x.all()...))
		return stored
	}
	liars := []Holder{{Replica: "liar"}, {Replica: "liar", Rank: 1}}
	incs := []uint64{x.Begin(liars[0]), x.Begin(liars[1])}
	made := 0
	for i := range 1000 {
		if store(liars[i%2], incs[i%2], fmt.Sprint("made up ", i)) {
			made++
		}
	}
	if got := x.ScopeShare("liar"); made != 200 || got != (ScopeShare{Made: 200, Refused: 800, Full: true}) {
		t.Fatalf("%d scopes, %+v", made, got)
	}
	for r := range 3 {
		honest := Holder{Replica: fmt.Sprint("honest ", r)}
		inc := x.Begin(honest)
		for i := range minShare {
			if !store(honest, inc, fmt.Sprint(r, " ", i)) {
				t.Fatalf("adapter %d of %s is refused", i, honest.Replica)
			}
		}
		if store(honest, inc, "one more") {
			t.Errorf("%s has more than its share", honest.Replica)
		}
		if !store(honest, inc, "made up 1") {
			t.Errorf("%s: a scope that is known already is refused", honest.Replica)
		}
	}
	x.Remove("liar")
	for r := range 3 {
		x.Remove(fmt.Sprint("honest ", r))
	}
	x.Sweep()
	if n := len(x.shares); n != 0 {
		t.Errorf("%d shares of replicas that are gone", n)
	}
	if !store(liars[0], x.Begin(liars[0]), "again") {
		t.Error("a scope is refused where there are none")
	}
}
