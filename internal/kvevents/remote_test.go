package kvevents

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/indexrpc"
	"warmroute/internal/reporter"
)

// remote serves x and returns a client of it.
func remote(t *testing.T, x *index.Index) indexpb.CacheIndexClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- indexrpc.New(x, indexrpc.Options{}).Serve(ctx, l) }()
	conn, err := grpc.NewClient("passthrough:///index", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return indexpb.NewCacheIndexClient(conn)
}

// TestCaptureRemote: events that go to the index in process and events that go
// through a sidecar give the same index, after every frame of every capture.
func TestCaptureRemote(t *testing.T) {
	for name, c := range captures(t) {
		t.Run(name, func(t *testing.T) {
			near, far := realIndex(t), realIndex(t)
			local := newPlayer(t, near)
			reports := reporter.New(remote(t, far), local.world.o.holder(), reporter.Options{})
			sidecar := newPlayer(t, reports)
			payloads := make(map[uint64][]byte)
			size := truth{held: map[uint64]int{}}
			for _, f := range c.Frames {
				payloads[f.Seq] = f.Payload
				size.apply(t, f.Payload)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			matched := 0
			for _, s := range c.Steps {
				for _, seq := range s.EventSeqs {
					local.play(t, seq, payloads[seq])
					sidecar.play(t, seq, payloads[seq])
					if err := reports.Flush(ctx); err != nil {
						t.Fatal(err)
					}
					if a, b := near.Holdings(local.world.o.holder()), far.Holdings(local.world.o.holder()); a != b || a == 0 {
						t.Fatalf("after frame %d: %d blocks in process, %d through the sidecar", seq, a, b)
					}
					for _, q := range c.Steps {
						tokens := q.tokens(t)
						if tokens == nil {
							continue
						}
						a, b := lookup(near, local.world.o.holder(), c, q, tokens, size.size), lookup(far, local.world.o.holder(), c, q, tokens, size.size)
						if a != b {
							t.Fatalf("after frame %d, %s: %d tokens in process, %d through the sidecar", seq, q.Name, a, b)
						}
						matched += a
					}
				}
			}
			if matched == 0 {
				t.Error("nothing matched: nothing was compared")
			}
		})
	}
}
