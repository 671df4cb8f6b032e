package indexrpc

import (
	"testing"

	pb "warmroute/index/indexpb"

	"warmroute/render/testkit/must"
)

// holding is what one call reports of the replica r: two blocks.
type holding struct {
	rank                  int32
	tenant, model, scheme string
	ttl                   int64
}

// held is every kind of holding of two ranks, leases included. The last two have the hashes of
// the first.
var held = []holding{
	{0, "", "m", "engine", 0}, {0, "blue", "m", "engine", 0}, {0, "blue", "m", "tokens", 0}, {0, "blue", "m", "engine:x", 60_000},
	{0, "", "other", "tokens", 0}, {0, "red", "m", "tokens", 60_000}, {1, "blue", "m", "engine", 0}, {0, "", "twin", "engine", 0}, {0, "", "m", "tokens", 0},
}

// first returns the first hash of a holding.
func first(i int) uint64 {
	if i >= len(held)-2 {
		return 0
	}
	return uint64(100 * i)
}

// reportAll reports what is held.
func (b *bench) reportAll() {
	b.t.Helper()
	for i, h := range held {
		q := from("r", h.scheme, first(i), 2)
		q.Rank, q.Tenant, q.Model, q.TtlMs = h.rank, h.tenant, h.model, h.ttl
		b.report(q)
	}
	b.wantLost("a report")
}

// wantLost checks which holdings are without their second block.
func (b *bench) wantLost(after string, lost ...int) {
	b.t.Helper()
	without := map[int]bool{}
	for _, i := range lost {
		without[i] = true
	}
	for i, h := range held {
		q := ask(h.scheme, first(i), 2)
		q.Tenant, q.Model = h.tenant, h.model
		out := must.Get(b.c.LookupRoute(b.ctx(), q))(b.t)
		var blocks uint64
		for _, r := range out.GetRoutes() {
			if r.GetRank() == h.rank {
				blocks = max(blocks, r.GetMatchedBlocks())
			}
		}
		if (blocks < 2) != without[i] {
			b.t.Errorf("after %s: %d blocks of %+v", after, blocks, h)
		}
	}
}

// TestAClearIsOfItsSubject: ALL_CLEARED ends what one rank holds under the tenant, model and
// scheme that it names, leases included; without a model or a scheme under every one, and without
// any of the three everything.
func TestAClearIsOfItsSubject(t *testing.T) {
	for _, c := range []struct {
		tenant, model, scheme string
		lost                  []int
		removed               uint64 // leases are not counted
	}{
		{"blue", "m", "engine", []int{1}, 2},
		{"blue", "m", "engine:x", []int{3}, 0},
		{"blue", "m", "", []int{1, 2, 3}, 4},
		{"blue", "", "", []int{1, 2, 3}, 4},
		{"", "m", "", []int{0, 8}, 4},
		{"", "m", "engine", []int{0}, 2},
		{"", "", "tokens", []int{4, 8}, 4},
		{"red", "m", "tokens", []int{5}, 0},
		{"blue", "other", "engine", nil, 0},
		{"", "", "", []int{0, 1, 2, 3, 4, 5, 7, 8}, 12},
	} {
		t.Run(c.tenant+"/"+c.model+"/"+c.scheme, func(t *testing.T) {
			b := serve(t)
			b.reportAll()
			clear := &pb.PublishEventRequest{Type: pb.EventType_ALL_CLEARED, ReplicaId: "r", Tenant: c.tenant, Model: c.model, HashScheme: c.scheme}
			if out := b.publish(clear); out.GetRemoved() != c.removed {
				t.Errorf("%d blocks removed, want %d", out.GetRemoved(), c.removed)
			}
			b.wantLost("the clear", c.lost...)
			b.reportAll() // blocks that were cleared can be stored again
		})
	}
}

// TestAnEvictionIsOfItsSubject: PREFIX_EVICTED removes a block under the tenant, model and scheme
// that it names, under every model or scheme if it names none, and under all if it names none of
// the three.
func TestAnEvictionIsOfItsSubject(t *testing.T) {
	for _, c := range []struct {
		tenant, model, scheme string
		of                    int // the holding whose second block is named
		lost                  []int
	}{
		{"", "m", "engine", 0, []int{0}},
		{"", "twin", "engine", 0, []int{7}},
		{"", "", "engine", 0, []int{0, 7}},
		{"", "m", "", 0, []int{0, 8}},
		{"", "", "", 0, []int{0, 7, 8}},
		{"", "", "tokens", 0, []int{8}},
		{"", "", "", 2, []int{2}},
		{"blue", "m", "engine", 0, nil},
		{"", "m", "tokens", 0, []int{8}},
		{"blue", "", "", 1, []int{1}},
		{"red", "m", "tokens", 5, []int{5}},
		{"red", "m", "engine", 5, nil},
		{"red", "", "", 5, []int{5}},
	} {
		t.Run(c.tenant+"/"+c.model+"/"+c.scheme, func(t *testing.T) {
			b := serve(t)
			b.reportAll()
			out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Tenant: c.tenant, Model: c.model, HashScheme: c.scheme, BlockHash: hash(first(c.of) + 1)})
			if want := uint64(len(c.lost)); held[c.of].ttl == 0 && out.GetRemoved() != want {
				t.Errorf("%d blocks removed, want %d", out.GetRemoved(), want)
			}
			b.wantLost("the eviction", c.lost...)
		})
	}
}
