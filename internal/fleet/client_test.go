package fleet

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs"
	"warmroute/internal/telemetry/metricstest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// run starts a fleet on real sockets and waits until cond holds.
func run(t testing.TB, o Options, cond func(*Snapshot) bool) *Fleet {
	t.Helper()
	f := must.Get(New(o, Hooks{}))(t)
	testenv.Run(t, f.Run)
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond(f.Snapshot()) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after 10 s: %+v", *f.Snapshot().Replicas[0])
		}
	}
	return f
}

func hostOf(s *httptest.Server) string { return s.Listener.Addr().String() }

func TestRealSockets(t *testing.T) {
	s := serveFake(t, fake(1, 7))
	registry := prometheus.NewRegistry()
	catalog := &metricstest.Catalog{To: registry}
	replicas := list(hostOf(s), "127.0.0.1:1")
	replicas[0].Name = "vllm-0"
	f := run(t, Options{Replicas: replicas, Registerer: catalog}, func(s *Snapshot) bool { return s.Ready == 1 && s.Settled })
	c := f.Snapshot().Serving("m", "")
	if len(c) != 1 || c[0].Replica.Name != "vllm-0" || c[0].Replica.Addr != hostOf(s) || c[0].Replica.Load[0].Running != 7 || c[0].Replica.Events[0].Endpoint != "tcp://127.0.0.1:5557" {
		t.Errorf("%+v", c)
	}
	if dead := f.Snapshot().Replica("127.0.0.1:1"); dead.Ready || !strings.HasPrefix(dead.Why, "unreachable: ") {
		t.Errorf("%+v", dead)
	}
	f.metrics.sourceFailures.WithLabelValues("static")
	metricstest.Lint(t, registry)
	families := must.Get(registry.Gather())(t)
	if documented := catalog.Metrics(); len(families) != len(documented) {
		t.Errorf("%d metrics are collected, %d described", len(families), len(documented))
	}
}

func TestAuthorizationAndTLS(t *testing.T) {
	replica := fake(1, 0)
	n := &network{replicas: map[string]*fakeReplica{"x": replica}, asked: map[string]int{}}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer s3cret" && strings.HasPrefix(req.URL.Path, "/v1") { // as vLLM guards
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		code, body, _ := n.answer("x", req.URL.Path)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	dir := t.TempDir()
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key")
	must.Do(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	must.Do(t, os.WriteFile(key, []byte("s3cret\n"), 0o600))
	ready := func(s *Snapshot) bool { return s.Ready == 1 }
	run(t, Options{Replicas: list(hostOf(s)), HTTP: HTTPOptions{TLS: certs.ClientOptions{Enabled: true, CAFile: ca}, TokenFile: key}}, ready)
	why := func(prefix string) func(*Snapshot) bool {
		return func(s *Snapshot) bool { return len(s.Replicas) == 1 && strings.HasPrefix(s.Replicas[0].Why, prefix) }
	}
	run(t, Options{Replicas: list(hostOf(s)), HTTP: HTTPOptions{TLS: certs.ClientOptions{Enabled: true, CAFile: ca}}}, why("unauthorized: "))
	run(t, Options{Replicas: list(hostOf(s)), HTTP: HTTPOptions{TLS: certs.ClientOptions{Enabled: true}}}, why("unreachable: "))
	for want, o := range map[string]HTTPOptions{
		"fleet.tls.ca_file":    {TLS: certs.ClientOptions{Enabled: true, CAFile: filepath.Join(dir, "none")}},
		"holds no certificate": {TLS: certs.ClientOptions{Enabled: true, CAFile: key}},
		"fleet.tls.cert_file":  {TLS: certs.ClientOptions{Enabled: true, CertFile: ca, KeyFile: ca}},
		"fleet.token_file":     {TokenFile: filepath.Join(dir, "none")},
	} {
		if _, err := New(Options{HTTP: o}, Hooks{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// Whatever a replica sends, the answer is bounded and the replica named.
func TestHostileAnswers(t *testing.T) {
	endless := func(w http.ResponseWriter) {
		junk := []byte(strings.Repeat("vllm:num_requests_running{engine=\"0\"} 1\n", 1000))
		for {
			if _, err := w.Write(junk); err != nil {
				return
			}
		}
	}
	for want, handler := range map[string]http.HandlerFunc{
		"bad answer: models: invalid character 'v'": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				endless(w)
			}
		},
		"bad answer: /v1/models: HTTP status 302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		},
		"bad answer: models: invalid character '<'": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") },
		"unreachable: ": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	} {
		s := httptest.NewServer(handler)
		run(t, Options{Replicas: list(hostOf(s))}, func(s *Snapshot) bool {
			return len(s.Replicas) == 1 && strings.HasPrefix(s.Replicas[0].Why, want)
		})
		s.Close()
	}
	page := fake(1, 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			endless(w)
		}
		n := &network{replicas: map[string]*fakeReplica{"x": page}}
		code, body, _ := n.answer("x", r.URL.Path)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	f := run(t, Options{Replicas: list(hostOf(s))}, func(s *Snapshot) bool { return s.Ready == 1 })
	if r := f.Snapshot().Replicas[0]; r.Load != nil || r.BlockSize != 0 {
		t.Errorf("a page over the limit tells nothing: %+v", r)
	}
}

// TestUnusedConnectionsEndBeforeVLLMs: vLLM closes a connection that was idle for 5 s, and a POST
// that meets that is not sent again.
func TestUnusedConnectionsEndBeforeVLLMs(t *testing.T) {
	c := must.Get(HTTPOptions{}.Client(64))(t)
	if kept := c.Transport.(*http.Transport).IdleConnTimeout; kept <= 0 || kept >= 5*time.Second {
		t.Errorf("unused connections are kept for %v", kept)
	}
}
