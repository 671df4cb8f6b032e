package reporter

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
	"warmroute/internal/indexrpc"
	"warmroute/internal/testenv/rpc"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a served index, a client of it and a clock.
type bench struct {
	t   *testing.T
	x   *index.Index
	s   *indexrpc.Server
	c   pb.CacheIndexClient
	mu  sync.Mutex
	now time.Time
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
	b.s = indexrpc.New(b.x, indexrpc.Options{Now: b.clock})
	b.c = pb.NewCacheIndexClient(rpc.Dial(t, func(ctx context.Context, l net.Listener) error { return b.s.Serve(ctx, l) }))
	must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}, grpc.WaitForReady(true)))(t)
	return b
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func ask(scheme string, first uint64, n int) *pb.LookupRouteRequest {
	q := &pb.LookupRouteRequest{Model: "m", HashScheme: scheme, BlockSize: 128}
	for i := range uint64(n) {
		q.BlockHashes = append(q.BlockHashes, binary.BigEndian.AppendUint64(nil, first+i))
	}
	return q
}

// want compares with "replica:tokens" of every route, best first, or the reason for none.
func (b *bench) want(q *pb.LookupRouteRequest, want string) {
	b.t.Helper()
	out := must.Get(b.c.LookupRoute(b.ctx(), q))(b.t)
	got := out.GetReason().String()
	if len(out.GetRoutes()) > 0 {
		var all []string
		for _, r := range out.GetRoutes() {
			all = append(all, fmt.Sprintf("%s:%d", r.GetReplicaId(), r.GetMatchedTokens()))
		}
		got = strings.Join(all, " ")
	}
	if got != want {
		b.t.Errorf("lookup gives %q, want %q", got, want)
	}
}
