package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"warmroute/index"
	"warmroute/internal/bearer"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/indexrpc"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// served is an index behind gRPC.
type served struct {
	x    *index.Index
	addr string
	stop func()
}

func serveIndex(t *testing.T, addr string, options ...grpc.ServerOption) served {
	t.Helper()
	x := index.New(index.Options{})
	l := must.Get(net.Listen("tcp", addr))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- indexrpc.New(x, indexrpc.Options{}).Serve(ctx, l, options...) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		x.Close()
	}
	t.Cleanup(stop)
	return served{x, l.Addr().String(), stop}
}

// matched waits until the index matches n blocks of the keys.
func matched(t *testing.T, x *index.Index, scope index.Scope, keys []prefixhash.Key, n int32) {
	t.Helper()
	got := int32(0)
	testenv.Until(t, 20*time.Second, fmt.Sprintf("%d blocks match", n), func() bool {
		got = 0
		for _, m := range x.Lookup(nil, scope, keys) {
			got = m.Blocks
		}
		return got == n
	}, func() any { return got })
}

func TestSidecar(t *testing.T) {
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	scopes := map[string]index.Scope{
		"tokens": {Tenant: "a", Model: "m", Scheme: "tokens", BlockSize: 2},
		"engine": {Tenant: "a", Model: "m", Scheme: "engine", BlockSize: 2},
		// One of several kinds of engine: askers of another kind match nothing.
		"engine:sglang-0.5": {Tenant: "a", Model: "m", Scheme: "engine:sglang-0.5", BlockSize: 2},
	}
	chains := map[string][]prefixhash.Key{
		"tokens":            prefixhash.AppendTokens(nil, prefixhash.TokenRoot("m", prefixhash.LoRA{}), tokens, prefixhash.Blocks{Size: 2}, nil),
		"engine":            {11, 12, 13, 14},
		"engine:sglang-0.5": {11, 12, 13, 14},
	}
	for scheme, scope := range scopes {
		t.Run(scheme, func(t *testing.T) {
			one := serveIndex(t, testenv.Addresses(t, 1)[0]) // the test listens at its address twice
			p := running(t, one.addr, "-tenant", "a", "-hash-scheme", scheme, "-window", "5ms")
			p.Publish(kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{11, 12, 13, 14}, Tokens: tokens, BlockSize: 2})
			matched(t, one.x, scope, chains[scheme], 4)
			for other, apart := range scopes {
				if got := one.x.Lookup(nil, apart, chains[other]); other != scheme && len(got) > 0 {
					t.Errorf("asked for %s, what was reported as %s answers: %v", other, scheme, got)
				}
			}
			p.Publish(kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{13}})
			matched(t, one.x, scope, chains[scheme], 2)

			// The index goes, the cache changes, another index comes.
			one.stop()
			p.Publish(kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{12}})
			two := serveIndex(t, one.addr)
			matched(t, two.x, scope, chains[scheme], 1)

			// The replica's cache is reset.
			p.Publish(kvtest.Event{Kind: kvtest.Cleared})
			matched(t, two.x, scope, chains[scheme], 0)
		})
	}
}

// TestSidecarIsLetIn where the index requires a certificate and a token.
func TestSidecarIsLetIn(t *testing.T) {
	ca := certstest.New(t)
	own, sidecar := ca.Issue("index"), ca.Issue("sidecar")
	source := must.Get(certs.New(certs.Options{CertFile: own.CertFile, KeyFile: own.KeyFile, ClientCAFile: ca.CAFile}, nil))(t)
	secret := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	token := must.Get(bearer.File(secret))(t)
	served := serveIndex(t, "127.0.0.1:0", append(indexrpc.Guarded(token), grpc.Creds(credentials.NewTLS(source.Server("h2"))))...)
	p := running(t, served.addr, "-window", "5ms", "-index-tls", "-index-ca", ca.CAFile, "-index-cert", sidecar.CertFile, "-index-key", sidecar.KeyFile,
		"-index-token-file", secret)
	p.Publish(kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{11, 12}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2})
	matched(t, served.x, index.Scope{Model: "m", Scheme: "engine", BlockSize: 2}, []prefixhash.Key{11, 12}, 2)
}

func TestSidecarOptions(t *testing.T) {
	ended, end := context.WithCancel(t.Context()) // an accepted command line ends at once, without an error
	end()
	good := []string{"-endpoint", "tcp://h:1", "-replica", "10.0.0.1:1", "-model", "m", "-hash-scheme", "tokens"}
	for _, c := range []struct {
		without string
		with    []string
		want    string
	}{
		{"-replica", nil, "-replica: must be given"},
		{"-model", nil, "-model: must be given"},
		{"-hash-scheme", nil, "-hash-scheme: must be given, tokens, engine or engine:NAME"},
		{"-endpoint", nil, "-endpoint: must be given"},
		{"", []string{"-tokens"}, "-tokens: only with -print"},
		{"", []string{"-index-ca", "ca.pem"}, "-index-tls: must be given"},
		{"", []string{"-index-tls", "-index-cert", "c.pem"}, "-index-cert, -index-key: one is given without the other"},
		{"", []string{"-index", "10.0.0.9:9003", "-index-token-file", "t"}, "-index-token-file: the token would be sent to 10.0.0.9:9003 without encryption"},
		{"", []string{"-index-token-file", "/nonexistent/token"}, "/nonexistent/token"},
		{"", []string{"-admin", "9091"}, `-admin: "9091" is not host:port`},
		{"", []string{"-replay", "h"}, `-replay: endpoint "h"`},
		{"", []string{"-replica", "$(POD_IP):8000"}, `-replica "$(POD_IP):8000": is not ip:port`},
		{"", []string{"-replica", "10.0.0.1"}, `-replica "10.0.0.1": is not ip:port`},
		{"", []string{"-replica", "10.0.0.1:0"}, `-replica "10.0.0.1:0": is not ip:port`},
	} {
		var args []string
		for i := 0; i < len(good); i += 2 {
			if good[i] != c.without {
				args = append(args, good[i], good[i+1])
			}
		}
		err := run(ended, append(args, c.with...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("without %s, with %v: error %v, want %q", c.without, c.with, err, c.want)
		}
	}
	if err := run(ended, nil, io.Discard, io.Discard); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("%v: want all four problems at once", err)
	}
}

// TestReplicaName: the router knows a replica by one name, in brackets if it is IPv6; Kubernetes'
// $(POD_IP):8000 has none.
func TestReplicaName(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:8000": "10.0.0.1:8000", "fd00::1:8000": "[fd00::1]:8000", "[fd00:0::1]:8000": "[fd00::1]:8000", "::ffff:10.0.0.1:8000": "10.0.0.1:8000",
	} {
		o, err := parse([]string{"-endpoint", "tcp://h:1", "-replica", in, "-model", "m", "-hash-scheme", "tokens"}, io.Discard)
		if err != nil || o.replica != want {
			t.Errorf("%s: %q, %v; want %q", in, o.replica, err, want)
		}
	}
}
