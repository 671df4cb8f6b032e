package main

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"warmroute/render/testkit/must"
)

// goroutines notes which goroutines answer.
type goroutines struct {
	healthpb.UnimplementedHealthServer
	mu   sync.Mutex
	seen map[string]int
}

func (g *goroutines) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	var stack [64]byte
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[string(name)]++
	return new(healthpb.HealthCheckResponse), nil
}

// Streams that come one after the other are followed by the same goroutines, whose stacks
// need not grow again.
func TestStreamsShareGoroutines(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	on := &goroutines{seen: map[string]int{}}
	g := grpc.NewServer(grpcOptions(nil)...)
	healthpb.RegisterHealthServer(g, on)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(listener) })
	defer serving.Wait()
	defer g.Stop()
	conn := must.Get(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	const streams = 4 * streamWorkers
	for range streams {
		must.Get(healthpb.NewHealthClient(conn).Check(t.Context(), new(healthpb.HealthCheckRequest)))(t)
	}
	if n := len(on.seen); n > 2*streamWorkers { // the first streams may come before the workers have started
		t.Errorf("%d streams on %d goroutines, want at most %d", streams, n, 2*streamWorkers)
	}
}
