package indexrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"warmroute/internal/bearer"
	"warmroute/internal/certs"
	"warmroute/internal/listen"
)

// Guarded refuses every call, reflection included, that does not carry the token as
// "authorization: Bearer TOKEN".
func Guarded(token *bearer.Token) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := check(ctx, token); err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := check(stream.Context(), token); err != nil {
				return err
			}
			return next(s, stream)
		}),
	}
}

func check(ctx context.Context, token *bearer.Token) error {
	if token.Accepts(metadata.ValueFromIncomingContext(ctx, "authorization")) {
		return nil
	}
	return status.Error(codes.Unauthenticated, "the call carries no valid bearer token")
}

// carried puts the token into a client's calls.
type carried struct {
	token *bearer.Token
	clear bool // without TLS too: the call does not leave the host
}

func (b carried) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": b.token.Header()}, nil
}

func (b carried) RequireTransportSecurity() bool { return !b.clear }

// Access has the settings of a client's connection to an index service.
type Access struct {
	TLS       certs.ClientOptions
	TokenFile string // file with the bearer token for the index service; "" = none is sent
}

// Validate returns every problem of reaching addr, one sentence each.
func (a Access) Validate(addr string) error {
	err := a.TLS.Validate("tls.")
	if a.TokenFile != "" && !a.TLS.Enabled && !listen.Loopback(addr) {
		err = errors.Join(err, fmt.Errorf("token_file: the token would be sent to %s without encryption: enable tls", addr))
	}
	return err
}

// lost ends a connection of which nothing has been read for so long during calls, and not for the time
// of a ping either: a machine that is lost ends none, and later calls would go to it until the kernel
// gives up, a quarter of an hour later. grpc-go permits no shorter time.
var lost = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}

// Dial makes a connection to an index service; nothing is sent yet.
func Dial(addr string, a Access, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := a.Validate(addr); err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if a.TLS.Enabled {
		var err error
		if transport, err = certs.ClientCredentials(a.TLS); err != nil {
			return nil, err
		}
	}
	options = append(options, grpc.WithTransportCredentials(transport), grpc.WithNoProxy(), grpc.WithKeepaliveParams(lost))
	if a.TokenFile != "" {
		token, err := bearer.File(a.TokenFile)
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(carried{token, !a.TLS.Enabled}))
	}
	return grpc.NewClient(addr, options...)
}
