package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
	"warmroute/internal/xds"
	"warmroute/render/testkit/must"
)

// secured is a replica behind HTTPS of TLS 1.3, which requires a certificate of its clients.
type secured struct {
	addr   string
	client atomic.Int64 // serial number of the client's certificate of the last request that Envoy sent
}

func secure(t *testing.T, own certstest.Pair, curve tls.CurveID, clients *x509.CertPool, replica string) *secured {
	t.Helper()
	pair := must.Get(tls.LoadX509KeyPair(own.CertFile, own.KeyFile))(t)
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	if curve != 0 {
		c.CurvePreferences = []tls.CurveID{curve}
	}
	if clients != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	l := must.Get(tls.Listen("tcp", "127.0.0.1:0", c))(t)
	s := &secured{addr: l.Addr().String()}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: replica})
	server := &http.Server{ErrorLog: nil, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" && clients != nil {
			s.client.Store(r.TLS.PeerCertificates[0].SerialNumber.Int64())
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return s
}

// TestEnvoySpeaksTLSToReplicasAsTheRouterDoes: what fleet.tls says holds for both, also
// after certificates were renewed.
func TestEnvoySpeaksTLSToReplicasAsTheRouterDoes(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	own, mine := ca.Issue("replica"), ca.Issue("router")
	_, ed25519Key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p521Key := must.Get(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))(t)
	for name, c := range map[string]struct {
		settings string
		mutual   bool
		key      crypto.Signer // of the replica's certificate; nil = as that of others
		curve    tls.CurveID   // that the replica requires; 0 = any
	}{
		"by name, mutual": {fmt.Sprintf("ca_file: %s, server_name: Replica.test, cert_file: %s, key_file: %s", ca.CAFile, mine.CertFile, mine.KeyFile), true, nil, 0},
		"not verified":    {"insecure_skip_verify: true", false, nil, 0},
		"full name, a key of Ed25519 and curve P-384": {"server_name: other.test., ca_file: " + ca.CAFile, false, ed25519Key, tls.CurveP384},
		"a key of P-521 and its curve":                {"ca_file: " + ca.CAFile, false, p521Key, tls.CurveP521},
	} {
		t.Run(name, func(t *testing.T) {
			sim := testenv.StartSimulator(t)
			var clients *x509.CertPool
			if c.mutual {
				clients = ca.Pool
			}
			own := own
			if c.key != nil {
				own = ca.IssueFor("other", c.key, x509.KeyUsageDigitalSignature)
			}
			s := secure(t, own, c.curve, clients, sim.Addr)
			f := follow(t, fmt.Sprintf("fleet:\n  tls: {enabled: true, %s}\n  replicas: [{address: %q, events: [{endpoint: \"tcp://%s\", replay_endpoint: \"tcp://%s\"}]}]\n",
				c.settings, s.addr, sim.Events, sim.Replay))
			until(t, "the replica is ready", func() bool { return f.r.replicas.fleet.Snapshot().Ready == 1 })
			if got := f.ask(); got != s.addr {
				t.Errorf("%q has served, want %q", got, s.addr)
			}
			if !c.mutual {
				return
			}
			if got := s.client.Load(); got != mine.Serial {
				t.Errorf("Envoy shows certificate %d, want %d", got, mine.Serial)
			}
			renewed := ca.Issue("router")
			until(t, "Envoy shows the renewed certificate", func() bool { f.ask(); return s.client.Load() == renewed.Serial })
		})
	}
}

// TestReplicaTLSIsPrinted: a static configuration has the same settings, and no private key.
func TestReplicaTLSIsPrinted(t *testing.T) {
	ca := certstest.New(t)
	mine := ca.Issue("router")
	both := t.TempDir() + "/both.pem" // authorities beside a key
	var text []byte
	for _, file := range []string{mine.KeyFile, ca.CAFile} {
		b := must.Get(os.ReadFile(file))(t)
		text = append(text, b...)
	}
	must.Do(t, os.WriteFile(both, text, 0o600))
	const replicas = "fleet:\n  replicas: [{address: \"10.0.0.1:8000\"}]\n  tls: {enabled: true, "
	for settings, want := range map[string]string{
		"ca_file: " + both: "san_type: IP_ADDRESS, matcher: {safe_regex",
		"ca_file: " + both + ", server_name: vllm.test":                                           `sni: "vllm.test"`,
		"ca_file: " + both + ", server_name: 'fd00:0::7'":                                         `san_type: IP_ADDRESS, matcher: {exact: "fd00::7"}`,
		"ca_file: " + both + ", server_name: 10.0.0.7":                                            `san_type: IP_ADDRESS, matcher: {exact: "10.0.0.7"}`,
		"ca_file: " + both + ", cert_file: " + mine.CertFile + ", key_file: " + mine.KeyFile:      mine.KeyFile,
		"insecure_skip_verify: true":                                                              "transport_socket",
		"insecure_skip_verify: true, cert_file: " + mine.CertFile + ", key_file: " + mine.KeyFile: mine.CertFile,
	} {
		c := must.Get(parseConfig(t, replicas+settings+"}\n"))(t)
		var out bytes.Buffer
		must.Do(t, c.writeEnvoy(stdio{Out: &out}, true, false))
		got := out.String()
		if !strings.Contains(got, want) || strings.Contains(got, "PRIVATE KEY") || strings.Contains(got, "trusted_ca: {inline") == strings.Contains(settings, "insecure") {
			t.Errorf("%s: want %q in\n%s", settings, want, got)
		}
	}
	for settings, want := range map[string]string{
		"ca_file: /nonexistent":    "fleet.tls.ca_file: open /nonexistent",
		"ca_file: " + mine.KeyFile: "fleet.tls.ca_file: ",
	} {
		c, err := parseConfig(t, replicas+settings+"}\n")
		if err == nil {
			err = c.writeEnvoy(stdio{Out: new(bytes.Buffer)}, true, false)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}

// TestMissingAuthoritiesAreSaid: without xds a configuration is valid for which none for Envoy can be
// made; `check` and `envoy-config` say so in the same words.
func TestMissingAuthoritiesAreSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	for settings, missing := range map[string]bool{"": true, ", insecure_skip_verify: true": false} {
		text := "xds: {listen: \"\"}\nfleet: {tls: {enabled: true" + settings + "}, replicas: [{address: \"10.0.0.1:8000\"}]}\n"
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		run := func(command string) (said string, err error) {
			var out bytes.Buffer
			err = program().Run(t.Context(), []string{command, "-config", file}, stdio{Out: &out, Err: &out})
			return out.String(), err
		}
		checked, err := run("check")
		if err != nil {
			t.Fatal(err)
		}
		_, err = run("envoy-config")
		if (err != nil) != missing {
			t.Fatalf("%q: %v", settings, err)
		}
		if said := strings.Contains(checked, "fleet.tls.ca_file: is missing"); said != missing {
			t.Errorf("%q: check says\n%s", settings, checked)
		}
		if missing && !strings.Contains(checked, "# "+err.Error()+"\n") {
			t.Errorf("check says\n%s\nenvoy-config %v", checked, err)
		}
	}
}

// TestFilesThatStayAreNotParsedAgain: a look at files of fleet.tls that have not changed costs a
// part of reading them, and tells what is wrong with them still.
func TestFilesThatStayAreNotParsedAgain(t *testing.T) {
	ca := certstest.New(t)
	own := ca.Issue("router")
	load := func(key string) *reloads {
		c := must.Get(parseConfig(t, fmt.Sprintf("fleet: {tls: {enabled: true, ca_file: %q, cert_file: %q, key_file: %q}, replicas: [{address: \"10.0.0.1:8000\"}]}", ca.CAFile, own.CertFile, key)))(t)
		return newReloads(c, prometheus.NewRegistry())
	}
	l := load(own.KeyFile)
	p := xds.New(xds.Settings{}, nil, prometheus.NewRegistry(), nil)
	look := func() {
		must.Do(t, l.publish(p))
	}
	changed := testing.AllocsPerRun(20, func() { ca.Issue("router"); look() }) - testing.AllocsPerRun(20, func() { ca.Issue("router") })
	if same := testing.AllocsPerRun(20, look); same > changed/2 {
		t.Errorf("%v allocations for files as before, %v for changed ones", same, changed)
	}
	l = load(ca.Issue("other").KeyFile)
	for range 2 {
		if err := l.publish(p); err == nil || len(l.unreadTLS()) != 1 {
			t.Errorf("a pair that does not fit: %v %q", err, l.unreadTLS())
		}
	}
}
