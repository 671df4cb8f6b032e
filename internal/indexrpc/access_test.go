package indexrpc

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/internal/bearer"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// guarded serves an index on a real socket with options.
func guarded(t *testing.T, options ...grpc.ServerOption) (addr string) {
	t.Helper()
	x := index.New(index.Options{})
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(x.Close)
	testenv.Run(t, func(ctx context.Context) error { return New(x, Options{}).Serve(ctx, l, options...) })
	return l.Addr().String()
}

// try makes a single call and a stream, and returns the code both end with.
func try(t *testing.T, addr string, a Access) codes.Code {
	t.Helper()
	conn := must.Get(Dial(addr, a))(t)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := pb.NewCacheIndexClient(conn)
	_, one := c.GetCacheState(ctx, &pb.GetCacheStateRequest{})
	s, many := c.StreamEvents(ctx)
	if many == nil {
		_, many = s.CloseAndRecv()
	}
	if status.Code(one) != status.Code(many) {
		t.Errorf("a call ends with %v, a stream with %v", one, many)
	}
	return status.Code(one)
}

func writeToken(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestBearerToken(t *testing.T) {
	path := writeToken(t, "secret\n")
	token := must.Get(bearer.File(path))(t)
	addr := guarded(t, Guarded(token)...)
	if got := try(t, addr, Access{}); got != codes.Unauthenticated {
		t.Errorf("without a token: %v", got)
	}
	if got := try(t, addr, Access{TokenFile: writeToken(t, "secre")}); got != codes.Unauthenticated {
		t.Errorf("with another token: %v", got)
	}
	if got := try(t, addr, Access{TokenFile: writeToken(t, "secret")}); got != codes.OK {
		t.Errorf("with the token: %v", got)
	}
}

func TestMutualTLS(t *testing.T) {
	ours, others := certstest.New(t), certstest.New(t)
	server, stranger, sidecar := ours.Issue("server"), others.Issue("stranger"), ours.Issue("sidecar")
	source := must.Get(certs.New(certs.Options{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ours.CAFile}, nil))(t)
	addr := guarded(t, grpc.Creds(credentials.NewTLS(source.Server("h2"))))
	client := certs.ClientOptions{Enabled: true, CAFile: ours.CAFile}
	if got := try(t, addr, Access{}); got != codes.Unavailable {
		t.Errorf("in clear: %v", got)
	}
	if got := try(t, addr, Access{TLS: client}); got != codes.Unavailable {
		t.Errorf("without a certificate: %v", got)
	}
	client.CertFile, client.KeyFile = stranger.CertFile, stranger.KeyFile
	if got := try(t, addr, Access{TLS: client}); got != codes.Unavailable {
		t.Errorf("with another authority's certificate: %v", got)
	}
	client.CertFile, client.KeyFile = sidecar.CertFile, sidecar.KeyFile
	if got := try(t, addr, Access{TLS: client}); got != codes.OK {
		t.Errorf("with a certificate: %v", got)
	}
	if got := try(t, addr, Access{TLS: client, TokenFile: writeToken(t, "any")}); got != codes.OK {
		t.Errorf("with a token nobody asks for: %v", got)
	}
	client.CAFile = others.CAFile
	if got := try(t, addr, Access{TLS: client}); got != codes.Unavailable {
		t.Errorf("a server nobody vouches for: %v", got)
	}
}

// TestAuthoritiesAreRenewed: a client takes its authorities from their file at each connection.
func TestAuthoritiesAreRenewed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	var addr string
	var used net.Conn
	dial := func(context.Context, string) (c net.Conn, err error) {
		used, err = net.Dial("tcp", addr)
		return used, err
	}
	var conn *grpc.ClientConn
	for i := range 2 {
		ca := certstest.New(t)
		server := ca.Issue("server")
		source := must.Get(certs.New(certs.Options{CertFile: server.CertFile, KeyFile: server.KeyFile}, nil))(t)
		addr = guarded(t, grpc.Creds(credentials.NewTLS(source.Server("h2"))))
		must.Do(t, os.WriteFile(file, must.Get(os.ReadFile(ca.CAFile))(t), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if conn == nil {
			conn = must.Get(Dial("passthrough:///localhost", Access{TLS: certs.ClientOptions{Enabled: true, CAFile: file}}, grpc.WithContextDialer(dial)))(t)
			defer conn.Close()
		} else {
			used.Close()
			conn.WaitForStateChange(ctx, connectivity.Ready) // a call that is sent before fails
		}
		if _, err := pb.NewCacheIndexClient(conn).GetCacheState(ctx, &pb.GetCacheStateRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatalf("by authority %d: %v", i, err)
		}
	}
}

func TestAccessIsValidated(t *testing.T) {
	for _, c := range []struct {
		addr string
		a    Access
		want string
	}{
		{"10.0.0.1:9003", Access{TokenFile: "t"}, "token_file: the token would be sent to 10.0.0.1:9003 without encryption"},
		{"localhost:9003", Access{TokenFile: "t"}, ""},
		{"[::1]:9003", Access{TokenFile: "t"}, ""},
		{"10.0.0.1:9003", Access{TokenFile: "t", TLS: certs.ClientOptions{Enabled: true}}, ""},
		{"h:1", Access{TLS: certs.ClientOptions{CAFile: "x"}}, "tls.enabled: is false"},
		{"h:1", Access{TLS: certs.ClientOptions{Enabled: true, KeyFile: "x"}}, "tls.cert_file: is missing"},
		{"h:1", Access{TLS: certs.ClientOptions{Enabled: true, CertFile: "x"}}, "tls.key_file: is missing"},
	} {
		err := c.a.Validate(c.addr)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %+v: %v, want %q", c.addr, c.a, err, c.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	for _, a := range []Access{
		{TokenFile: missing}, {TokenFile: writeToken(t, "two words")}, {TokenFile: writeToken(t, "\n")},
		{TLS: certs.ClientOptions{Enabled: true, CAFile: missing}}, {TLS: certs.ClientOptions{Enabled: true, CAFile: writeToken(t, "x")}},
		{TLS: certs.ClientOptions{Enabled: true, CertFile: missing, KeyFile: missing}},
	} {
		if conn, err := Dial("localhost:1", a); err == nil {
			conn.Close()
			t.Errorf("%+v: dialed", a)
		}
	}
}

// TestIndexIsCalledDirectly: a proxy of the environment is for what is outside.
func TestIndexIsCalledDirectly(t *testing.T) {
	if os.Getenv("HTTPS_PROXY") == "" { // which a process reads once
		c := exec.Command(os.Args[0], "-test.run=^TestIndexIsCalledDirectly$")
		c.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1", "NO_PROXY=")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if got := try(t, strings.Replace(guarded(t), "127.0.0.1", "0.0.0.0", 1), Access{}); got != codes.OK {
		t.Errorf("a call ends with %v", got)
	}
}

// away is a connection to a machine that is lost once gone is closed: it ends nothing, and answers nothing.
type away struct {
	net.Conn
	gone chan struct{}
}

func (a *away) Read(b []byte) (n int, err error) {
	for {
		n, err = a.Conn.Read(b)
		select {
		case <-a.gone:
			if err == nil {
				continue
			}
		default:
		}
		return n, err
	}
}

// TestALostIndexIsLeft: calls reach the index at its next place a short time after its machine is lost.
func TestALostIndexIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := index.New(index.Options{})
		l := bufconn.Listen(1 << 20)
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- New(x, Options{}).Serve(ctx, l) }()
		gone, dials := make(chan struct{}), 0
		conn, err := Dial("passthrough:///index", Access{}, grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			c, err := l.Dial()
			if dials++; dials == 1 {
				c = &away{c, gone}
			}
			return c, err
		}))
		if err != nil {
			t.Fatal(err)
		}
		call := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := pb.NewCacheIndexClient(conn).GetCacheState(ctx, &pb.GetCacheStateRequest{})
			return err
		}
		if err := call(); err != nil {
			t.Fatal(err)
		}
		close(gone)
		lost := time.Now()
		for err = call(); err != nil && time.Since(lost) < time.Hour; err = call() {
			time.Sleep(time.Second)
		}
		if took := time.Since(lost); err != nil || took > time.Minute {
			t.Errorf("%v, after %v", err, took)
		}
		conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		x.Close()
	})
}
