package indexrpc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"warmroute/internal/certs"
)

// tokenEvery is how old a token read from its file may be: renewed ones overlap
// for longer.
const tokenEvery = 10 * time.Second

// Token is a bearer token in a file, read again when it may have changed. A file
// that cannot be read, or is empty, leaves the token before.
type Token struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	value  string
	readAt time.Time
}

// NewToken reads the file, which must hold a token.
func NewToken(path string) (*Token, error) {
	t := &Token{path: path, now: time.Now}
	if err := t.read(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Token) read() error {
	t.readAt = t.now()
	b, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("token_file: %w", err)
	}
	value := strings.TrimSpace(string(b))
	if value == "" || strings.ContainsAny(value, " \r\n\t") {
		return fmt.Errorf("token_file: %s does not hold one token", t.path)
	}
	t.value = value
	return nil
}

func (t *Token) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Sub(t.readAt) >= tokenEvery {
		_ = t.read() // keeps the one before
	}
	return t.value
}

// ServerOptions refuse every call, reflection included, that does not carry the
// token as "authorization: Bearer TOKEN".
func (t *Token) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := t.check(ctx); err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := t.check(stream.Context()); err != nil {
				return err
			}
			return next(s, stream)
		}),
	}
}

func (t *Token) check(ctx context.Context) error {
	want := "Bearer " + t.current()
	for _, got := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated, "the call carries no valid bearer token")
}

// bearer puts the token into a client's calls.
type bearer struct {
	token *Token
	clear bool // without TLS too: the call does not leave the host
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token.current()}, nil
}

func (b bearer) RequireTransportSecurity() bool { return !b.clear }

// Access is how a client reaches an index service.
type Access struct {
	TLS       certs.ClientOptions `yaml:"tls,omitempty"`        // TLS towards the index service
	TokenFile string              `yaml:"token_file,omitempty"` // file with the bearer token for the index service; "" = none is sent
}

// Validate returns every problem of reaching addr, one sentence each.
func (a Access) Validate(addr string) error {
	err := a.TLS.Validate()
	if err != nil {
		err = fmt.Errorf("tls.%w", err)
	}
	if a.TokenFile != "" && !a.TLS.Enabled && !loopback(addr) {
		err = errors.Join(err, fmt.Errorf("token_file: the token would be sent to %s without encryption: enable tls", addr))
	}
	return err
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Dial makes a connection to an index service; nothing is sent yet.
func Dial(addr string, a Access, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := a.Validate(addr); err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if a.TLS.Enabled {
		c, err := certs.Client(a.TLS)
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(c)
	}
	options = append(options, grpc.WithTransportCredentials(transport))
	if a.TokenFile != "" {
		token, err := NewToken(a.TokenFile)
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer{token, !a.TLS.Enabled}))
	}
	return grpc.NewClient(addr, options...)
}
