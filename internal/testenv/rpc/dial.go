// Package rpc serves gRPC in a test.
package rpc

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"warmroute/internal/testenv"
)

// Dial serves in memory until the test ends, and returns a connection to it.
func Dial(t testing.TB, serve func(context.Context, net.Listener) error) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	testenv.Run(t, func(ctx context.Context) error { return serve(ctx, l) })
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
