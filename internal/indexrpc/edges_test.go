package indexrpc

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// TestReasonsOfTenants: another tenant's reports do not show, shared ones do; a lease
// counts as a report.
func TestReasonsOfTenants(t *testing.T) {
	b := serve(t)
	theirs := from("theirs", "engine", 100, 1)
	theirs.Tenant = "a"
	b.report(theirs)
	of := func(tenant, scheme string, first uint64) *pb.LookupRouteRequest {
		q := ask(scheme, first, 1)
		q.Tenant = tenant
		return q
	}
	b.want(of("a", "engine", 999), "NO_MATCH")
	b.want(of("a", "tokens", 100), "SCHEME_MISMATCH")
	b.want(of("b", "engine", 100), "UNKNOWN_MODEL")
	b.want(of("", "engine", 100), "UNKNOWN_MODEL")
	b.want(of("b", "tokens", 100), "UNKNOWN_MODEL")
	lease := from("leased", "text", 300, 1)
	lease.TtlMs = 60_000
	b.report(lease)
	b.want(of("b", "text", 999), "NO_MATCH")
	b.want(of("b", "engine", 999), "SCHEME_MISMATCH")
}

// TestOpaqueIsWorthItsBest: of the hashes a replica holds the one worth most
// counts, in whatever order they are asked for; those nobody has are passed over.
func TestOpaqueIsWorthItsBest(t *testing.T) {
	b := serve(t)
	q := from("r", "text", 100, 3)
	q.Prefixes[0].BlockSize, q.Prefixes[0].TokenCounts = 0, []uint64{900, 70, 900}
	b.report(q)
	for _, asked := range [][]uint64{{100, 101, 102}, {101, 100}, {100, 101}, {999, 100}} {
		look := &pb.LookupRouteRequest{Model: "m", HashScheme: "text"}
		for _, h := range asked {
			look.BlockHashes = append(look.BlockHashes, hash(h))
		}
		b.want(look, "r:900")
	}
	b.want(ask("text", 999, 1), "NO_MATCH") // chained: a block without holders ends it
}

// TestLeasesLastAsLongAsTheySay, and no longer than the index keeps anything.
func TestLeasesLastAsLongAsTheySay(t *testing.T) {
	b := serve(t)
	long := from("r", "engine", 100, 1)
	long.TtlMs = 1 << 40
	b.report(long)
	short := from("s", "engine", 100, 1)
	short.TtlMs = 10_000
	b.report(short)
	b.advance(9 * time.Second)
	b.want(ask("engine", 100, 1), "r:128 s:128")
	b.advance(2 * time.Second)
	b.want(ask("engine", 100, 1), "r:128")
	b.advance(index.DefaultReplicaTTL + time.Minute)
	b.want(ask("engine", 100, 1), "UNKNOWN_MODEL")
}

// TestRetractIsOfOneScope: an evicted block's lease ends for the tenant, model,
// scheme and group of the event alone.
func TestRetractIsOfOneScope(t *testing.T) {
	b := serve(t)
	lease := func() *pb.ReportCacheStateRequest {
		q := from("r", "engine", 100, 1)
		q.TtlMs = 60_000
		return q
	}
	evict := func() *pb.PublishEventRequest {
		return &pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine", BlockHash: hash(100)}
	}
	b.report(lease())
	for name, change := range map[string]func(*pb.PublishEventRequest){
		"tenant":  func(q *pb.PublishEventRequest) { q.Tenant = "a" },
		"model":   func(q *pb.PublishEventRequest) { q.Model = "other" },
		"scheme":  func(q *pb.PublishEventRequest) { q.HashScheme = "tokens" },
		"group":   func(q *pb.PublishEventRequest) { q.Group = 1 },
		"replica": func(q *pb.PublishEventRequest) { q.ReplicaId = "s" },
	} {
		q := evict()
		change(q)
		b.publish(q)
		if got := b.lookup(ask("engine", 100, 1)); got != "r:128" {
			t.Errorf("evicted with another %s: %s", name, got)
		}
	}
	b.publish(evict())
	b.want(ask("engine", 100, 1), "UNKNOWN_MODEL")
}

// TestLeasesAreCounted: as stored, as entries of the metric, and in the state.
func TestLeasesAreCounted(t *testing.T) {
	b := serve(t)
	q := from("r", "engine", 100, 3)
	q.TtlMs = 60_000
	q.Prefixes = append(q.Prefixes, &pb.Prefix{BlockHashes: chain(200, 2), BlockSize: 64})
	if out := b.report(q); out.GetStored() != 5 || out.GetDropped() != 0 {
		t.Errorf("%v, want five stored", out)
	}
	mixed := from("r", "engine", 300, 2)
	if out := b.report(mixed); out.GetStored() != 2 {
		t.Errorf("%v, want two stored", out)
	}
	state := must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}))(t)
	blocks := map[uint32]uint64{}
	for _, m := range state.GetModels() {
		blocks[m.GetBlockSize()] += m.GetBlocks()
	}
	if blocks[128] != 5 || blocks[64] != 2 {
		t.Errorf("blocks by their size: %v", blocks)
	}
	if n := testutil.CollectAndCount(b.s.metrics, "warmroute_index_entries"); n != 1 || b.s.metrics.held()["m"] != 7 {
		t.Errorf("%d series, %v", n, b.s.metrics.held())
	}
}

func TestFreshness(t *testing.T) {
	for _, tt := range []struct {
		age, ttl time.Duration
		want     float64
	}{{0, time.Minute, 1}, {15 * time.Second, time.Minute, 0.75}, {time.Minute, time.Minute, 0}, {time.Hour, time.Minute, 0}, {-time.Second, time.Minute, 1},
		{time.Hour, 0, 1}, {time.Hour, -1, 1}} {
		if got := freshness(tt.age, tt.ttl); got != tt.want {
			t.Errorf("%v of %v: %g, want %g", tt.age, tt.ttl, got, tt.want)
		}
	}
}

// TestOpaqueIsBounded: beyond the bound expired hashes make room, then none does;
// known hashes are recorded again all the same.
func TestOpaqueIsBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const limit = 100
	o := opaque{tokens: map[opaqueKey]opaqueEntry{}, limit: limit}
	for i := range prefixhash.Key(limit) {
		until := now.Add(time.Minute)
		if i < 10 {
			until = now.Add(time.Second)
		}
		if !o.keep(opaqueKey{key: i}, 1, until, now) {
			t.Fatalf("no room for %d", i)
		}
	}
	if o.keep(opaqueKey{key: limit}, 1, now, now) {
		t.Error("room beyond the bound")
	}
	if !o.keep(opaqueKey{key: 50}, 7, now.Add(time.Minute), now) || o.tokensOf(opaqueKey{key: 50}) != 7 {
		t.Error("what is known cannot be noted again")
	}
	later := now.Add(2 * time.Second)
	if !o.keep(opaqueKey{key: limit}, 3, later.Add(time.Minute), later) || o.tokensOf(opaqueKey{key: limit}) != 3 || len(o.tokens) != limit-9 {
		t.Errorf("the expired make no room: %d", len(o.tokens))
	}
}

// TestSnapshotOverTheWire: a server's stream makes another index hold the same, in
// more than one message, for the holders with a known place.
func TestSnapshotOverTheWire(t *testing.T) {
	b := serve(t)
	r, stranger := index.Holder{Replica: "r"}, index.Holder{Replica: "stranger"}
	b.s.o.Cursors = func() []index.Cursor {
		return []index.Cursor{{Holder: r, Incarnation: 1, Next: 7, Begun: 3, Digest: 9, Complete: true, Scheme: "engine", Model: "m"}}
	}
	for _, h := range []index.Holder{r, stranger} {
		b.report(from(h.Replica, "engine", 1, 2*entriesPerMessage+5))
	}
	b.report(from(stranger.Replica, "engine", 1_000_000, 10)) // which no other replica holds
	x := index.New(index.Options{Now: b.clock})
	defer x.Close()
	cursors, _, err := Fetch(b.ctx(), b.c, x)
	if err != nil || len(cursors) != 1 || cursors[0].Next != 7 || !cursors[0].Complete {
		t.Fatalf("%+v, %v", cursors, err)
	}
	if got := x.Holdings(r); got != 2*entriesPerMessage+5 || x.Holdings(stranger) != 0 {
		t.Errorf("%d blocks of the holder whose place is known, %d of the other", got, x.Holdings(stranger))
	}
	stream := must.Get(b.c.StreamSnapshot(b.ctx(), &pb.SnapshotRequest{}))(t)
	var sizes []int
	for {
		part, err := stream.Recv()
		if err != nil {
			break
		}
		sizes = append(sizes, len(part.GetEntries()))
	}
	if n := len(sizes); n < 4 || slices.Max(sizes) != entriesPerMessage || slices.Min(sizes[1:n-1]) != entriesPerMessage {
		t.Errorf("messages of %v entries", sizes)
	}
}

// TestForgottenReporters: those silent for longer than the TTL, when another comes.
func TestForgottenReporters(t *testing.T) {
	b := serve(t)
	b.report(from("old", "engine", 100, 1))
	b.advance(time.Second)
	b.report(from("edge", "engine", 100, 1))
	b.advance(b.s.o.TTL)
	b.report(from("new", "engine", 100, 1))
	for name, kept := range map[string]bool{"old": false, "edge": true, "new": true} {
		if got := b.s.reporterOf(index.Holder{Replica: name}) != nil; got != kept {
			t.Errorf("%s is known: %v", name, got)
		}
	}
}
