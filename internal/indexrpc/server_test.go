package indexrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/prototext"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/prefixhash"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a served index, a client of it and a clock.
type bench struct {
	t      *testing.T
	x      *index.Index
	s      *Server
	c      pb.CacheIndexClient
	conn   *grpc.ClientConn
	mu     sync.Mutex
	now    time.Time
	cancel context.CancelFunc
	served chan error
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) advance(d time.Duration) {
	b.mu.Lock()
	b.now = b.now.Add(d)
	b.mu.Unlock()
	b.x.Sweep()
}

func serve(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Unix(1_800_000_000, 0), served: make(chan error, 1)}
	var err error
	if b.x, err = index.New(index.Options{Now: b.clock}); err != nil {
		t.Fatal(err)
	}
	b.s = New(b.x, Options{Now: b.clock})
	l := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() { b.served <- b.s.Serve(ctx, l) }()
	b.conn, err = grpc.NewClient("passthrough:///index", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	b.c = pb.NewCacheIndexClient(b.conn)
	if _, err := b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.conn.Close()
		cancel()
		if err := <-b.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := b.x.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func hash(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func chain(from uint64, n int) (out [][]byte) {
	for i := range uint64(n) {
		out = append(out, hash(from+i))
	}
	return out
}

// from is a report of n blocks of 128 tokens.
func from(replica, scheme string, first uint64, n int) *pb.ReportCacheStateRequest {
	p := &pb.Prefix{BlockHashes: chain(first, n), BlockSize: 128}
	for i := range n {
		p.TokenCounts = append(p.TokenCounts, uint64(128*(i+1)))
	}
	return &pb.ReportCacheStateRequest{ReplicaId: replica, Model: "m", HashScheme: scheme, Prefixes: []*pb.Prefix{p}}
}

func (b *bench) report(q *pb.ReportCacheStateRequest) *pb.ReportCacheStateResponse {
	b.t.Helper()
	out, err := b.c.ReportCacheState(b.ctx(), q)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) publish(q *pb.PublishEventRequest) *pb.PublishEventResponse {
	b.t.Helper()
	out, err := b.c.PublishEvent(b.ctx(), q)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func ask(scheme string, first uint64, n int) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{Model: "m", HashScheme: scheme, BlockHashes: chain(first, n), BlockSize: 128}
}

// lookup gives "replica:tokens" of every route, best first, or the reason for none.
func (b *bench) lookup(q *pb.LookupRouteRequest) string {
	b.t.Helper()
	out, err := b.c.LookupRoute(b.ctx(), q)
	if err != nil {
		b.t.Fatal(err)
	}
	if (out.GetHint() == pb.Hint_USE_HINT) != (out.GetReason() == pb.Reason_MATCHED) || (len(out.GetRoutes()) > 0) != (out.GetHint() == pb.Hint_USE_HINT) {
		b.t.Fatalf("hint, reason and routes disagree: %v", out)
	}
	if len(out.GetRoutes()) == 0 {
		return out.GetReason().String()
	}
	var all []string
	for _, r := range out.GetRoutes() {
		all = append(all, fmt.Sprintf("%s:%d", r.GetReplicaId(), r.GetMatchedTokens()))
	}
	return strings.Join(all, " ")
}

func (b *bench) want(q *pb.LookupRouteRequest, want string) {
	b.t.Helper()
	if got := b.lookup(q); got != want {
		b.t.Errorf("lookup gives %q, want %q", got, want)
	}
}

func TestRankingAndTopK(t *testing.T) {
	b := serve(t)
	for i, n := range []int{2, 5, 3, 4} {
		b.report(from(fmt.Sprintf("r%d", i), "engine", 100, n))
	}
	b.want(ask("engine", 100, 6), "r1:640 r3:512 r2:384")
	q := ask("engine", 100, 6)
	q.TopK = 10
	b.want(q, "r1:640 r3:512 r2:384 r0:256")
	q.TopK = 1
	b.want(q, "r1:640")
	// Half as fresh and twice as long is as good; a little fresher is better.
	b.advance(index.DefaultReplicaTTL / 2)
	b.report(from("r2", "engine", 100, 3))
	q.TopK = 2
	b.want(q, "r2:384 r1:640")
}

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
	b.report(from("r", "engine", 100, 2))
	b.want(ask("engine", 100, 9), "r:640")
}

func TestOrphanWaits(t *testing.T) {
	b := serve(t)
	tail := from("r", "engine", 102, 2)
	tail.Prefixes[0].ParentHash = hash(101)
	tail.Prefixes[0].TokenCounts = []uint64{128, 256} // within the event: the chain is not known
	b.report(tail)
	b.report(from("r", "engine", 100, 2))
	b.want(ask("engine", 100, 4), "r:512")
}

func TestIsolation(t *testing.T) {
	b := serve(t)
	own := from("own", "engine", 100, 2)
	own.Tenant = "a"
	other := from("other", "engine", 100, 3)
	other.Tenant = "b"
	lora := from("adapter", "engine", 100, 4)
	lora.Prefixes[0].Lora = &pb.Lora{}
	for _, q := range []*pb.ReportCacheStateRequest{own, other, lora, from("shared", "engine", 100, 1), from("tokens", "tokens", 100, 5)} {
		b.report(q)
	}
	q := ask("engine", 100, 9)
	b.want(q, "shared:128")
	q.Tenant = "a"
	b.want(q, "own:256 shared:128")
	q.Lora = &pb.Lora{}
	b.want(q, "adapter:512")
	q.Lora = &pb.Lora{Name: "x"}
	b.want(q, "NO_MATCH")
	b.want(ask("sha256", 100, 9), "SCHEME_MISMATCH")
}

func TestReasons(t *testing.T) {
	b := serve(t)
	b.want(ask("engine", 100, 1), "UNKNOWN_MODEL")
	b.report(from("r", "engine", 100, 1))
	b.want(ask("", 100, 1), "EMPTY_SCHEME")
	b.want(ask("engine", 100, 0), "EMPTY_PREFIX")
	b.want(ask("engine", 999, 1), "NO_MATCH")
	b.want(&pb.LookupRouteRequest{Model: "m", HashScheme: "engine", BlockSize: 128, BlockHashes: [][]byte{{}}}, "EMPTY_HASH")
	b.want(ask("tokens", 100, 1), "SCHEME_MISMATCH")
}

func TestEmptySchemeKeepsStats(t *testing.T) {
	b := serve(t)
	q := from("r", "", 100, 2)
	q.Stats = &pb.ReplicaStats{ReplicaId: "somebody else", HitRate: 7, Pressure: 0.5, Running: 3}
	if out := b.report(q); out.GetStored() != 0 || out.GetDropped() != 2 {
		t.Errorf("%v", out)
	}
	state, err := b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(state.GetModels()) != 0 || len(state.GetReplicas()) != 1 {
		t.Fatalf("%v", state)
	}
	r := state.GetReplicas()[0]
	if r.GetReplicaId() != "r" || r.GetStats().GetReplicaId() != "r" || r.GetStats().GetHitRate() != 1 || r.GetStats().GetRunning() != 3 || r.GetLastSeenMs() != b.clock().UnixMilli() {
		t.Errorf("%v: the replica named by the call is the one that counts", r)
	}
}

// TestLiveness: stats alone keep a replica's blocks and make none fresher;
// silence loses them all.
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
	for replica, want := range map[string]float64{"quiet": 0.5, "alive": 0.5, "current": 1} {
		q := ask("engine", 100, 1)
		q.Candidates = []string{replica}
		out, err := b.c.LookupRoute(b.ctx(), q)
		if err != nil || len(out.GetRoutes()) != 1 || out.GetRoutes()[0].GetFreshness() != want {
			t.Errorf("%s: %v %v, want freshness %v", replica, out, err, want)
		}
	}
	b.advance(index.DefaultReplicaTTL/2 + time.Minute)
	b.want(ask("engine", 100, 2), "current:128") // quiet has expired, what alive reported is as old as the TTL
	out, err := b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{})
	if err != nil {
		t.Fatal(err)
	}
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

func TestPrefixTTL(t *testing.T) {
	b := serve(t)
	q := from("r", "engine", 100, 2)
	q.TtlMs = 60_000
	b.report(q)
	b.want(ask("engine", 100, 2), "r:256")
	b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine", BlockHash: hash(101)})
	b.want(ask("engine", 100, 2), "r:128")
	b.advance(61 * time.Second)
	b.want(ask("engine", 100, 2), "UNKNOWN_MODEL")
}

func TestOpaque(t *testing.T) {
	b := serve(t)
	q := from("r", "text", 100, 2)
	q.Prefixes[0].BlockSize, q.Prefixes[0].TokenCounts = 0, []uint64{70, 900}
	b.report(q)
	short := from("s", "text", 100, 1)
	short.Prefixes[0].BlockSize, short.Prefixes[0].TokenCounts = 0, []uint64{70}
	b.report(short)
	look := ask("text", 100, 2)
	look.BlockSize = 0
	b.want(look, "r:900 s:70")
	short.Prefixes[0].TokenCounts = nil
	if out := b.report(short); out.GetDropped() != 1 {
		t.Errorf("%v: an opaque hash without its count is worth nothing", out)
	}
}

func TestLongHashesMeetIntegers(t *testing.T) {
	b := serve(t)
	q := from("bytes", "sha256", 100, 2)
	for i, h := range q.Prefixes[0].BlockHashes {
		q.Prefixes[0].BlockHashes[i] = append(make([]byte, 24), h...)
	}
	b.report(q)
	b.report(from("ints", "sha256", 100, 1))
	b.want(ask("sha256", 100, 2), "bytes:256 ints:128")
}

// TestForeignHashesAreVerifiedInFull: long hashes that are no digests of vLLM's
// match only as a whole.
func TestForeignHashesAreVerifiedInFull(t *testing.T) {
	long := func(head byte, tail uint64) []byte { return append([]byte{head, 0, 0, 0}, hash(tail)...) } // 12 bytes
	b := serve(t)
	q := from("r", "other", 0, 0)
	q.Prefixes[0].BlockHashes, q.Prefixes[0].TokenCounts = [][]byte{long(1, 7), long(1, 8)}, []uint64{128, 256}
	b.report(q)
	look := ask("other", 0, 0)
	look.BlockHashes = [][]byte{long(1, 7), long(1, 8)}
	b.want(look, "r:256")
	look.BlockHashes = [][]byte{long(1, 7), long(2, 8)}
	b.want(look, "r:128")
	look.BlockHashes = [][]byte{long(2, 7), long(1, 8)}
	b.want(look, "NO_MATCH")
	// A clash is not stored, and not removed either.
	q.Prefixes[0].BlockHashes, q.Prefixes[0].TokenCounts = [][]byte{long(2, 8)}, []uint64{128}
	if out := b.report(q); out.GetDropped() != 1 || out.GetStored() != 0 {
		t.Errorf("%v, want the clash dropped", out)
	}
	if out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "other", BlockHash: long(2, 8)}); out.GetRemoved() != 0 {
		t.Errorf("%v, want nothing removed", out)
	}
	if out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "other", BlockHash: long(1, 8)}); out.GetRemoved() != 1 {
		t.Errorf("%v, want one removed", out)
	}
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
	for _, ms := range []int64{0, -5, b.clock().Add(time.Hour).UnixMilli()} {
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
	s, err := b.c.StreamEvents(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []uint64{103, 102, 102} {
		if err := s.Send(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine", BlockHash: hash(h)}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := s.CloseAndRecv()
	if err != nil || out.GetRemoved() != 2 || out.GetFirst() || out.GetEpoch() == 0 {
		t.Fatalf("%v, %v: want two removed by a known replica", out, err)
	}
	b.want(ask("engine", 100, 4), "r:256")
	if s, err = b.c.StreamEvents(b.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.PublishEventRequest{ReplicaId: "r"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, want the bad event refused", err)
	}
}

func TestCleared(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 3))
	leased := from("r", "engine", 500, 1)
	leased.TtlMs = 60_000
	b.report(leased)
	if out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_ALL_CLEARED, ReplicaId: "r"}); out.GetRemoved() != 3 {
		t.Errorf("%v", out)
	}
	for _, first := range []uint64{100, 500} {
		if got := b.lookup(ask("engine", first, 1)); got != "UNKNOWN_MODEL" && got != "NO_MATCH" {
			t.Errorf("%d after a clear: %s", first, got)
		}
	}
}

// state is everything the service reports of itself, as text.
func (b *bench) state() string {
	b.t.Helper()
	out, err := b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{AllTenants: true})
	if err != nil {
		b.t.Fatal(err)
	}
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

// TestLookupChangesNothing: neither the blocks, nor their freshness, nor their
// deadlines.
func TestLookupChangesNothing(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 2))
	leased := from("r", "engine", 500, 1)
	leased.TtlMs = 120_000
	b.report(leased)
	before := b.state()
	b.advance(time.Minute)
	unknown := ask("engine", 100, 3)
	unknown.Tenant, unknown.Model = "made up", "made up"
	for range 3 {
		b.want(ask("engine", 100, 3), "r:256")
		b.want(ask("engine", 500, 1), "r:128")
		b.want(ask("engine", 900, 1), "NO_MATCH")
		b.want(ask("other", 100, 1), "SCHEME_MISMATCH")
		b.want(unknown, "UNKNOWN_MODEL")
	}
	if after := b.state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	b.advance(time.Minute + time.Second)
	b.want(ask("engine", 500, 1), "NO_MATCH") // the lookups did not extend it
	b.advance(index.DefaultReplicaTTL)
	b.want(ask("engine", 100, 1), "UNKNOWN_MODEL")
}

// TestCandidates: only the replicas that the caller can use answer, and each
// with its share of the prompt.
func TestCandidates(t *testing.T) {
	b := serve(t)
	for i, n := range []int{4, 2, 1} {
		b.report(from(fmt.Sprintf("r%d", i), "engine", 100, n))
	}
	q := ask("engine", 100, 8)
	q.Candidates = []string{"r1", "r2", "elsewhere"}
	b.want(q, "r1:256 r2:128")
	out, err := b.c.LookupRoute(b.ctx(), q)
	if err != nil || out.GetTotalTokens() != 1024 || out.GetRoutes()[0].GetShare() != 0.25 || out.GetRoutes()[1].GetShare() != 0.125 {
		t.Errorf("%v %v, want shares 0.25 and 0.125 of 1024", out, err)
	}
	q.Candidates = []string{"elsewhere"}
	b.want(q, "NO_CANDIDATE")

	opaque := from("o", "text", 100, 1)
	opaque.Prefixes[0].BlockSize, opaque.Prefixes[0].TokenCounts = 0, []uint64{300}
	b.report(opaque)
	q = &pb.LookupRouteRequest{Model: "m", HashScheme: "text", BlockHashes: chain(100, 1)}
	if out, err = b.c.LookupRoute(b.ctx(), q); err != nil || out.GetTotalTokens() != 0 || out.GetRoutes()[0].GetShare() != 0 {
		t.Errorf("%v %v: the length of an opaque prompt is not known", out, err)
	}
	q.PromptTokens = 400
	if out, err = b.c.LookupRoute(b.ctx(), q); err != nil || out.GetTotalTokens() != 400 || out.GetRoutes()[0].GetShare() != 0.75 {
		t.Errorf("%v %v, want a share of 0.75", out, err)
	}
}

// TestOnePrefixOfOneReplica goes in one event; its other prefixes and the other
// replicas' stay.
func TestOnePrefixOfOneReplica(t *testing.T) {
	b := serve(t)
	for _, r := range []string{"r", "s"} {
		b.report(from(r, "engine", 100, 3))
		b.report(from(r, "engine", 500, 2))
	}
	out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine",
		BlockHash: hash(100), BlockHashes: [][]byte{hash(101), hash(102), hash(999)}})
	if out.GetRemoved() != 3 {
		t.Errorf("%v, want three removed", out)
	}
	b.want(ask("engine", 100, 3), "s:384")
	b.want(ask("engine", 500, 2), "r:256 s:256")
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
		out, err := b.c.GetCacheState(b.ctx(), c.q)
		if err != nil {
			t.Fatal(err)
		}
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

func TestStream(t *testing.T) {
	b := serve(t)
	in, err := b.c.StreamCacheState(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		q := from("r", "engine", uint64(100+i), 1)
		if i > 0 {
			q.Prefixes[0].ParentHash = hash(uint64(99 + i))
		}
		if err := in.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	out, err := in.CloseAndRecv()
	if err != nil || out.GetStored() != 10 || !out.GetFirst() {
		t.Fatalf("%v, %v", out, err)
	}
	b.want(ask("engine", 100, 10), "r:1280")
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
	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
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

func TestReflection(t *testing.T) {
	b := serve(t)
	stream, err := grpc_reflection_v1.NewServerReflectionClient(b.conn).ServerReflectionInfo(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	out, err := stream.Recv()
	if err != nil || !strings.Contains(out.String(), "warmroute.index.v1.CacheIndex") {
		t.Errorf("%v, %v", out, err)
	}
}

func TestMetrics(t *testing.T) {
	b := serve(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(b.s.Collectors()...)
	gauge := func(want string) {
		t.Helper()
		text := "# HELP warmroute_index_entries Blocks that replicas reported, distinct per scope, by base model.\n# TYPE warmroute_index_entries gauge\n" + want
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "warmroute_index_entries"); err != nil {
			t.Error(err)
		}
	}
	b.report(from("r", "engine", 100, 3))
	b.report(from("s", "engine", 100, 3))
	gauge("warmroute_index_entries{model=\"m\"} 3\n")
	// The router's own guesses are no blocks of replicas.
	b.x.Speculate(engineScope, b.x.ID(index.Holder{Replica: "r"}), []prefixhash.Key{7, 8}, b.clock().Add(time.Minute))
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

// TestGaugeDuringIngest: scrapes while replicas report see between nothing and
// all, and all at the end.
func TestGaugeDuringIngest(t *testing.T) {
	b := serve(t)
	var wg sync.WaitGroup
	var failed error
	for r := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := b.c.ReportCacheState(b.ctx(), from(fmt.Sprint(r), "engine", uint64(1000*(r*50+i+1)), 4)); err != nil {
					failed = errors.Join(failed, err)
				}
			}
		})
	}
	for range 50 {
		if n := b.s.metrics.held()["m"]; n < 0 || n > 800 {
			t.Fatalf("%d entries", n)
		}
	}
	wg.Wait()
	if n := b.s.metrics.held()["m"]; failed != nil || n != 800 {
		t.Errorf("%d entries at the end, %v", n, failed)
	}
}
