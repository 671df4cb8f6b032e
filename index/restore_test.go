package index

import (
	"slices"
	"testing"

	"warmroute/prefixhash"
)

// TestRestore: Restore stores blocks behind their parents, and blocks below the GPU, which have no
// parents; it drops those of no tier, and leaves out those without their parent.
func TestRestore(t *testing.T) {
	x := newFixture(t, Options{})
	onGPU := func(n int) Entry {
		e := Entry{Scope: x.f.scope, Holder: a, Key: x.f.key[n], Hash: uint64(n + 1)}
		if n > 0 {
			e.Parent = x.f.key[n-1]
		}
		return e
	}
	twice, of, below, nowhere := onGPU(2), onGPU(0), onGPU(30), onGPU(40)
	twice.Extra, of.Holder, below.Tier, nowhere.Tier = 1, b, TierCPU, tiers
	res := x.Restore(slices.Values([]Entry{onGPU(0), onGPU(1), twice, onGPU(3), of, below, nowhere, onGPU(50)}))
	if res != (Result{Stored: 6, Repeated: 1, Orphaned: 1, Dropped: 1}) {
		t.Errorf("%+v, want 6 blocks and a copy stored, one left out and one dropped", res)
	}
	x.wantReported(a, 4)
	x.wantReported(b, 1)
	if n := x.TierHoldings(a, TierCPU); n != 1 || x.Holdings(a) != 4 {
		t.Errorf("%d blocks below the GPU, %d on it, want 1 and 4", n, x.Holdings(a))
	}
	x.sound()
	if res := x.Restore(slices.Values([]Entry{onGPU(0)})); res != (Result{}) {
		t.Errorf("%+v of a holder that has begun, want nothing", res)
	}
}

// A restored scope counts against the bound of scopes.
func TestRestoreKeepsBounds(t *testing.T) {
	x := newFixture(t, Options{MaxScopes: 1})
	first := Entry{Scope: x.f.scope, Holder: a, Key: x.f.key[0], Hash: 1}
	other := first
	other.Scope.Model = "other"
	if res := x.Restore(slices.Values([]Entry{first, other})); res.Stored != 1 || res.Dropped != 1 || x.counts().Scopes != 1 {
		t.Errorf("%+v in %d scopes, want one block stored and one dropped", res, x.counts().Scopes)
	}
}

// A snapshot yields nothing of an ended holder's copies below the GPU, and of a tier no block without a
// copy.
func TestSnapshotLeavesOutEndedHolders(t *testing.T) {
	x := newFixture(t, Options{})
	x.send(a, x.Begin(a), x.f.stored(a, TierCPU, x.all()[:3]), x.f.stored(a, TierStorage, x.all()[:2]))
	x.send(b, x.Begin(b), x.f.stored(b, TierStorage, x.all()[:1]))
	x.Remove(a.Replica)
	var keys []prefixhash.Key
	for e := range x.Snapshot() {
		keys = append(keys, e.Key)
	}
	if !slices.Equal(keys, x.f.key[:1]) {
		t.Errorf("%d blocks %x, want that of the other holder", len(keys), keys)
	}
}
