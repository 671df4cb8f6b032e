package indexrpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/prototext"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/render/testkit/must"
)

func TestIdempotentDeltas(t *testing.T) {
	b := serve(t)
	first := b.report(from("r", "engine", 100, 3))
	again := b.report(from("r", "engine", 100, 3))
	if !first.GetFirst() || again.GetFirst() || first.GetStored() != 3 || again.GetStored() != 0 || first.GetEpoch() == 0 || first.GetEpoch() != again.GetEpoch() {
		t.Errorf("first %v, again %v", first, again)
	}
	// A delta continues from its parent; blocks that it does not mention stay.
	more := from("r", "engine", 103, 2)
	more.Prefixes[0].ParentHash = hash(102)
	b.report(more)
	b.want(ask("engine", 100, 9), "r:640")
	// One eviction is enough, however often it was announced.
	if out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine", BlockHash: hash(101)}); out.GetRemoved() != 1 {
		t.Errorf("evicted %v", out)
	}
	b.want(ask("engine", 100, 9), "r:128")
	// What was behind it is hit again once it is stored.
	b.report(from("r", "engine", 100, 2))
	b.want(ask("engine", 100, 9), "r:640")
}

// TestASleeperHasNoBlocks: what a sidecar reports again of a replica that has discarded its blocks in its
// sleep is not stored; its cache groups are known.
func TestASleeperHasNoBlocks(t *testing.T) {
	b := serve(t)
	b.report(from("r", "tokens", 100, 3))
	b.x.Remove("r")
	b.empty = "r"
	q := from("r", "tokens", 100, 3)
	q.Prefixes[0].SpecKind = "full_attention"
	if out := b.report(q); out.GetStored() != 0 || out.GetDropped() != 0 {
		t.Errorf("asleep: %v", out)
	}
	b.report(from("other", "tokens", 100, 1))
	b.want(ask("tokens", 100, 3), "other:128")
	if _, known := b.x.Trust(b.x.ID(index.Holder{Replica: "r"}), "", "m"); !known {
		t.Error("its groups are not known")
	}
	b.empty = ""
	b.report(q)
	b.want(ask("tokens", 100, 3), "r:384 other:128")
}

func TestEmptySchemeKeepsStats(t *testing.T) {
	b := serve(t)
	q := from("r", "", 100, 2)
	q.Stats = &pb.ReplicaStats{ReplicaId: "somebody else", HitRate: 7, Pressure: 0.5, Running: 3}
	if out := b.report(q); out.GetStored() != 0 || out.GetDropped() != 2 {
		t.Errorf("%v", out)
	}
	state := must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}))(t)
	if len(state.GetModels()) != 0 || len(state.GetReplicas()) != 1 {
		t.Fatalf("%v", state)
	}
	r := state.GetReplicas()[0]
	if r.GetReplicaId() != "r" || r.GetStats().GetReplicaId() != "r" || r.GetStats().GetHitRate() != 1 || r.GetStats().GetRunning() != 3 || r.GetLastSeenMs() != b.clock().UnixMilli() {
		t.Errorf("%v: the replica named by the call is the one that counts", r)
	}
}

// TestLiveness: stats alone keep a replica's blocks; silence loses them all.
func TestLiveness(t *testing.T) {
	b := serve(t)
	b.report(from("quiet", "engine", 100, 2))
	b.report(from("alive", "engine", 100, 1))
	b.report(from("current", "engine", 100, 1))
	sign := func(replica string, current bool) {
		b.publish(&pb.PublishEventRequest{Type: pb.EventType_REPLICA_UPDATED, ReplicaId: replica, Current: current, Stats: &pb.ReplicaStats{Running: 1}})
	}
	b.advance(index.DefaultReplicaTTL / 2)
	sign("alive", false)
	stats := from("alive", "engine", 0, 0)
	stats.Prefixes, stats.Stats = nil, &pb.ReplicaStats{Running: 2}
	b.report(stats)
	sign("current", true)
	b.advance(index.DefaultReplicaTTL/2 + time.Minute)
	b.want(ask("engine", 100, 2), "current:128") // quiet has expired, alive's report is as old as the TTL
	out := must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}))(t)
	for _, r := range out.GetReplicas() {
		if want := map[string]uint64{"alive": 1, "current": 1, "quiet": 0}[r.GetReplicaId()]; r.GetBlocks() != want {
			t.Errorf("%s holds %d blocks, want %d", r.GetReplicaId(), r.GetBlocks(), want)
		}
	}
	sign("alive", true)
	b.want(ask("engine", 100, 2), "alive:128 current:128")
	if out := b.report(from("quiet", "engine", 100, 2)); !out.GetFirst() {
		t.Errorf("%v: a replica that had expired is to be told so", out)
	}
	b.want(ask("engine", 100, 2), "quiet:256 alive:128 current:128")
}

// TestTimestamps: evidence is as old as the report's timestamp, never from the future,
// and an old report is a sign of life.
func TestTimestamps(t *testing.T) {
	b := serve(t)
	fresh := func() float64 {
		t.Helper()
		out, err := b.c.LookupRoute(b.ctx(), ask("engine", 100, 1))
		if err != nil || len(out.GetRoutes()) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
		return out.GetRoutes()[0].GetFreshness()
	}
	q := from("r", "engine", 100, 1)
	b.report(q)
	b.advance(index.DefaultReplicaTTL / 2)
	q.TimestampMs = b.clock().Add(-index.DefaultReplicaTTL / 4).UnixMilli()
	b.report(q)
	if got := fresh(); got != 0.75 {
		t.Errorf("freshness %v of a report a quarter of the TTL old", got)
	}
	b.advance(index.DefaultReplicaTTL * 3 / 4) // silent for less than the TTL, though its news is as old
	if out := b.report(from("r", "engine", 100, 1)); out.GetFirst() {
		t.Error("a replica that reported in time was forgotten")
	}
	for _, ms := range []int64{0, -5, b.clock().Add(time.Hour).UnixMilli(), b.clock().Add(-index.DefaultReplicaTTL).UnixMilli(), 1} {
		b.advance(time.Minute)
		q.TimestampMs = ms
		b.report(q)
		if got := fresh(); got != 1 {
			t.Errorf("freshness %v after a report with timestamp %d, want the server's now", got, ms)
		}
	}
}

// TestStreamEvents: as single events, in order, with one answer.
func TestStreamEvents(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 4))
	s := must.Get(b.c.StreamEvents(b.ctx()))(t)
	for _, h := range []uint64{103, 102, 102} {
		must.Do(t, s.Send(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine", BlockHash: hash(h)}))
	}
	out, err := s.CloseAndRecv()
	if err != nil || out.GetRemoved() != 2 || out.GetFirst() || out.GetEpoch() == 0 {
		t.Fatalf("%v, %v: want two removed by a known replica", out, err)
	}
	b.want(ask("engine", 100, 4), "r:256")
	s = must.Get(b.c.StreamEvents(b.ctx()))(t)
	must.Do(t, s.Send(&pb.PublishEventRequest{ReplicaId: "r"}))
	if _, err := s.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, want the bad event refused", err)
	}
}

// state is everything the service reports of itself, as text.
func (b *bench) state() string {
	b.t.Helper()
	out := must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{AllTenants: true}))(b.t)
	return prototext.Format(out)
}

// TestAddedChangesNothing: blocks are added by reports alone.
func TestAddedChangesNothing(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 2))
	before := b.state()
	b.advance(time.Minute)
	for _, replica := range []string{"r", "new"} {
		b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_ADDED, ReplicaId: replica, Model: "m", HashScheme: "engine", BlockHash: hash(900),
			Stats: &pb.ReplicaStats{Running: 1}})
	}
	if after := b.state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	b.want(ask("engine", 900, 1), "NO_MATCH")
}

// TestStateIsOfTheTenantAskedFor: replicas, blocks and stats of others do not show.
func TestStateIsOfTheTenantAskedFor(t *testing.T) {
	b := serve(t)
	report := func(tenant, model, replica string, first uint64, n int) {
		q := from(replica, "engine", first, n)
		q.Tenant, q.Model, q.Stats = tenant, model, &pb.ReplicaStats{Running: 1}
		b.report(q)
	}
	report("a", "m-a", "one", 100, 2)
	report("a", "m-b", "one", 300, 5)
	report("a", "m-b", "two", 300, 5)
	report("b", "m-a", "theirs", 100, 3)
	report("", "m-a", "shared", 100, 1)
	b.publish(&pb.PublishEventRequest{Type: pb.EventType_REPLICA_UPDATED, ReplicaId: "theirs"}) // names no tenant: still theirs
	b.publish(&pb.PublishEventRequest{Type: pb.EventType_REPLICA_UPDATED, ReplicaId: "idle", Tenant: "b", Model: "m-a", Stats: &pb.ReplicaStats{Running: 9}})
	ttl := from("lent", "engine", 700, 1)
	ttl.Tenant, ttl.Model, ttl.TtlMs = "b", "m-a", 60_000
	b.report(ttl)
	for _, c := range []struct {
		q    *pb.GetCacheStateRequest
		want string
	}{
		{&pb.GetCacheStateRequest{Tenant: "a", Model: "m-a"}, "one:2"},
		{&pb.GetCacheStateRequest{Tenant: "a", Model: "m-b"}, "one:5 two:5"},
		{&pb.GetCacheStateRequest{Tenant: "a"}, "one:7 two:5"},
		{&pb.GetCacheStateRequest{Tenant: "b"}, "idle:0 lent:0 theirs:3"},
		{&pb.GetCacheStateRequest{Tenant: "b", Model: "m-b"}, ""},
		{&pb.GetCacheStateRequest{}, "shared:1"},
		{&pb.GetCacheStateRequest{Tenant: "nobody"}, ""},
		{&pb.GetCacheStateRequest{AllTenants: true, Model: "m-b"}, "one:5 two:5"},
		{&pb.GetCacheStateRequest{AllTenants: true}, "idle:0 lent:0 one:7 shared:1 theirs:3 two:5"},
	} {
		out := must.Get(b.c.GetCacheState(b.ctx(), c.q))(t)
		var got []string
		for _, r := range out.GetReplicas() {
			got = append(got, fmt.Sprintf("%s:%d", r.GetReplicaId(), r.GetBlocks()))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v: %q, want %q", c.q, text, c.want)
		}
		for _, m := range out.GetModels() {
			if !c.q.GetAllTenants() && m.GetTenant() != c.q.GetTenant() {
				t.Errorf("%v shows %v", c.q, m)
			}
		}
	}
	// A lookup and an event name no replica of others either.
	q := ask("engine", 100, 3)
	q.Tenant, q.Model = "a", "m-a"
	b.want(q, "one:256 shared:128")
	q.Candidates = []string{"theirs"}
	b.want(q, "NO_CANDIDATE")
}

func TestBadRequests(t *testing.T) {
	b := serve(t)
	for want, call := range map[string]func() error{
		"replica_id": func() error { _, err := b.c.ReportCacheState(b.ctx(), from("", "engine", 1, 1)); return err },
		"rank -1": func() error {
			q := from("r", "engine", 1, 1)
			q.Rank = -1
			_, err := b.c.ReportCacheState(b.ctx(), q)
			return err
		},
		"model": func() error {
			q := from("r", "engine", 1, 1)
			q.Model = ""
			_, err := b.c.ReportCacheState(b.ctx(), q)
			return err
		},
		"type 0": func() error { _, err := b.c.PublishEvent(b.ctx(), &pb.PublishEventRequest{ReplicaId: "r"}); return err },
		"type 77": func() error {
			_, err := b.c.PublishEvent(b.ctx(), &pb.PublishEventRequest{ReplicaId: "r", Type: 77})
			return err
		},
		"block_hash": func() error {
			_, err := b.c.PublishEvent(b.ctx(), &pb.PublishEventRequest{ReplicaId: "r", Type: pb.EventType_PREFIX_EVICTED})
			return err
		},
		"block_hashes": func() error {
			_, err := b.c.PublishEvent(b.ctx(), &pb.PublishEventRequest{ReplicaId: "r", Type: pb.EventType_PREFIX_EVICTED, BlockHashes: [][]byte{hash(1), {}}})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// A hole in a run takes the run with it, not the report.
	q := from("r", "engine", 100, 2)
	q.Prefixes[0].BlockHashes[0] = nil
	q.Prefixes = append(q.Prefixes, from("", "", 200, 1).Prefixes...)
	if out := b.report(q); out.GetDropped() != 2 || out.GetStored() != 1 {
		t.Errorf("%v", out)
	}
}

func TestReadyLifecycle(t *testing.T) {
	x := index.New(index.Options{})
	defer x.Close()
	s := New(x, Options{})
	out, err := s.LookupRoute(t.Context(), ask("engine", 1, 1))
	if s.Ready() || err != nil || out.GetReason() != pb.Reason_NOT_READY {
		t.Errorf("before Serve: ready %v, %v %v", s.Ready(), out, err)
	}
	l := bufconn.Listen(1 << 10)
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(t.Context(), l) }()
	for !s.Ready() {
		time.Sleep(time.Millisecond)
	}
	l.Close() // the listener breaks: Serve returns on its own
	if err := <-failed; err == nil || s.Ready() {
		t.Errorf("after a failure: %v, ready %v", err, s.Ready())
	}
	ctx, cancel := context.WithCancel(t.Context())
	l = bufconn.Listen(1 << 10)
	go func() { failed <- s.Serve(ctx, l) }()
	for !s.Ready() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-failed; err != nil || s.Ready() {
		t.Errorf("after its end: %v, ready %v", err, s.Ready())
	}
}

func TestMetrics(t *testing.T) {
	b := serve(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(b.s.Collectors()...)
	gauge := func(want string) {
		t.Helper()
		text := "# HELP warmroute_index_entries Blocks that replicas reported, distinct per scope and memory.\n# TYPE warmroute_index_entries gauge\n" + want
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "warmroute_index_entries"); err != nil {
			t.Error(err)
		}
	}
	b.report(from("r", "engine", 100, 3))
	b.report(from("s", "engine", 100, 3))
	gauge("warmroute_index_entries{model=\"m\"} 3\n")
	b.want(ask("engine", 100, 1), "r:128 s:128")
	other := ask("engine", 100, 1)
	other.Model = "made up by a client"
	b.want(other, "UNKNOWN_MODEL")
	if n := testutil.ToFloat64(b.s.metrics.calls.WithLabelValues("m", "MATCHED", "true")); n != 1 {
		t.Errorf("%v matched calls", n)
	}
	if n := testutil.ToFloat64(b.s.metrics.calls.WithLabelValues(otherModel, "UNKNOWN_MODEL", "false")); n != 1 {
		t.Errorf("%v unknown calls", n)
	}
	for _, r := range []string{"r", "s"} {
		b.publish(&pb.PublishEventRequest{Type: pb.EventType_ALL_CLEARED, ReplicaId: r})
	}
	b.x.Sweep()
	gauge("warmroute_index_entries{model=\"m\"} 0\n") // drained: to zero, not away
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// TestDoubtsAreWords: the text of a sidecar's doubt comes to pages and terminals.
func TestDoubtsAreWords(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 1))
	b.publish(&pb.PublishEventRequest{
		Type: pb.EventType_REPLICA_UPDATED, ReplicaId: "r", Current: true, TimestampMs: b.clock().UnixMilli(),
		Doubt: "an\x1b[2J  event\x07 of\u202e a\u0085\tkind ü" + strings.Repeat("é", maxDoubt),
	})
	if got := b.x.Doubt(index.Holder{Replica: "r"}); !strings.HasPrefix(got, "an [2J event of a kind üéé") || !utf8.ValidString(got) || len(got) > maxDoubt {
		t.Errorf("%q", got)
	}
}
