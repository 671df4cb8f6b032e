package index

import (
	"slices"
	"testing"

	"warmroute/prefixhash"
)

// Restore stores the blocks whose position in a prompt the entries give, counts the other ones as dropped,
// and needs no position for blocks below the GPU.
func TestRestoreNeedsPositions(t *testing.T) {
	x := newFixture(t, Options{})
	onGPU := func(n int) Entry {
		return Entry{Scope: x.f.scope, Key: x.f.key[n], Copies: []Copy{{Holder: a}}}
	}
	first, lost, twice, below, nowhere := onGPU(0), onGPU(9), onGPU(20), onGPU(30), onGPU(40)
	second, behind := onGPU(1), onGPU(50)
	first.First, second.Parent, behind.Parent = true, x.f.key[0], x.f.key[49]
	twice.Copies = append(twice.Copies, Copy{Holder: b})
	below.Copies[0].Tier = TierCPU
	nowhere.Copies[0].Tier = tiers
	res := x.Restore(slices.Values([]Entry{second, first, lost, twice, below, nowhere, behind}))
	if res.Stored != 4 || res.Dropped != 3 {
		t.Errorf("%+v, want 4 blocks stored and 3 copies dropped", res)
	}
	x.wantReported(a, 2)
	if n := x.TierHoldings(a, TierCPU); n != 1 || x.Holdings(a) != 3 {
		t.Errorf("%d blocks below the GPU, %d on it, want 1 and 3", n, x.Holdings(a))
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
	if res := x.Restore(slices.Values([]Entry{onGPU(0), first})); res != (Result{}) {
		t.Errorf("%+v of a holder that has begun, want nothing", res)
	}
}

// A restored scope counts against the bound of scopes.
func TestRestoreKeepsBounds(t *testing.T) {
	x := newFixture(t, Options{MaxScopes: 1})
	first := Entry{Scope: x.f.scope, Key: x.f.key[0], First: true, Copies: []Copy{{Holder: a}}}
	other := first
	other.Scope.Model = "other"
	if res := x.Restore(slices.Values([]Entry{first, other})); res.Stored != 1 || res.Dropped != 1 || x.Stats().Scopes != 1 {
		t.Errorf("%+v in %d scopes, want one block stored and one dropped", res, x.Stats().Scopes)
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
		if !e.HasHash {
			keys = append(keys, e.Key)
		}
	}
	if !slices.Equal(keys, x.f.key[:1]) {
		t.Errorf("%d blocks %x, want that of the other holder", len(keys), keys)
	}
}
