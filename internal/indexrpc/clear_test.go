package indexrpc

import (
	"testing"

	pb "warmroute/index/indexpb"
)

// TestAClearIsOfAWholeCache: ALL_CLEARED ends all blocks of one rank under every tenant,
// model and scheme, whichever it names, leases included, and no block of other ranks.
func TestAClearIsOfAWholeCache(t *testing.T) {
	b := serve(t)
	holdings := []struct {
		rank                  int32
		tenant, model, scheme string
		ttl                   int64
	}{
		{0, "", "m", "engine", 0}, {0, "blue", "m", "engine", 0}, {0, "", "other", "tokens", 0}, {0, "red", "m", "tokens", 60_000}, {1, "", "m", "engine", 0},
	}
	matched := func(i int) (blocks uint64) {
		h := holdings[i]
		q := ask(h.scheme, uint64(100*i), 2)
		q.Tenant, q.Model = h.tenant, h.model
		out, err := b.c.LookupRoute(b.ctx(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.GetRoutes() {
			if r.GetRank() == h.rank {
				blocks += r.GetMatchedBlocks()
			}
		}
		return blocks
	}
	for i, h := range holdings {
		q := from("r", h.scheme, uint64(100*i), 2)
		q.Rank, q.Tenant, q.Model, q.TtlMs = h.rank, h.tenant, h.model, h.ttl
		b.report(q)
		if n := matched(i); n != 2 {
			t.Fatalf("%d blocks of %+v, want 2", n, h)
		}
	}
	b.publish(&pb.PublishEventRequest{Type: pb.EventType_ALL_CLEARED, ReplicaId: "r", Tenant: "blue", Model: "m", HashScheme: "engine"})
	for i, h := range holdings {
		if n, want := matched(i), uint64(2*h.rank); n != want {
			t.Errorf("%d blocks of %+v, want %d", n, h, want)
		}
	}
}

// TestAnEvictionIsOfAReplica: a reported block that is gone is gone under every
// tenant and model, whichever the event names.
func TestAnEvictionIsOfAReplica(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 2))
	out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Tenant: "blue", Model: "other", HashScheme: "tokens", BlockHash: hash(101)})
	if out.GetRemoved() != 1 {
		t.Errorf("%v, want one removed", out)
	}
	b.want(ask("engine", 100, 2), "r:128")
}
