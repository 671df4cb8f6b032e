package indexrpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/internal/testenv/rpc"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a served index, a client of it and a clock.
type bench struct {
	t     *testing.T
	x     *index.Index
	s     *Server
	c     pb.CacheIndexClient
	mu    sync.Mutex
	now   time.Time
	empty string // the replica that sleeps without its blocks
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
	b := &bench{t: t, now: time.Unix(1_800_000_000, 0)}
	b.x = index.New(index.Options{Now: b.clock})
	t.Cleanup(b.x.Close)
	b.s = New(b.x, Options{Now: b.clock, Empty: func(replica string) bool { return replica == b.empty }})
	b.c = pb.NewCacheIndexClient(rpc.Dial(t, func(ctx context.Context, l net.Listener) error { return b.s.Serve(ctx, l) }))
	must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}, grpc.WaitForReady(true)))(t)
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
	return must.Get(b.c.ReportCacheState(b.ctx(), q))(b.t)
}

func (b *bench) publish(q *pb.PublishEventRequest) *pb.PublishEventResponse {
	b.t.Helper()
	return must.Get(b.c.PublishEvent(b.ctx(), q))(b.t)
}

func ask(scheme string, first uint64, n int) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{Model: "m", HashScheme: scheme, BlockHashes: chain(first, n), BlockSize: 128}
}

// lookup gives "replica:tokens" of every route, best first, or the reason for none.
func (b *bench) lookup(q *pb.LookupRouteRequest) string {
	b.t.Helper()
	out := must.Get(b.c.LookupRoute(b.ctx(), q))(b.t)
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
