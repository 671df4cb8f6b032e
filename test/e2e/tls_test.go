package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
)

// TestTLSBetweenEnvoyAndTheRouter: with certificates that fit, requests get
// hints; with others they pass without, as if the router were dead.
func TestTLSBetweenEnvoyAndTheRouter(t *testing.T) {
	t.Parallel()
	ours, others := certstest.New(t), certstest.New(t)
	router := ours.Issue("router")
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	unusual := ours.IssueFor("unusual", key, x509.KeyUsageDigitalSignature)
	own := fmt.Sprintf("cert_file: %s, key_file: %s", router.CertFile, router.KeyFile)
	demand := own + ", client_ca_file: " + ours.CAFile
	withCA := certs.ClientOptions{Enabled: true, CAFile: ours.CAFile}
	named := func(name string) certs.ClientOptions {
		return certs.ClientOptions{Enabled: true, CAFile: ours.CAFile, ServerName: name}
	}
	issuedBy := func(a *certstest.Authority) certs.ClientOptions {
		client := a.Issue("envoy")
		return certs.ClientOptions{Enabled: true, CAFile: ours.CAFile, CertFile: client.CertFile, KeyFile: client.KeyFile}
	}
	for name, c := range map[string]struct {
		router string
		envoy  certs.ClientOptions
		hint   bool
	}{
		"own certificate":            {own, withCA, true},
		"self-signed":                {"self_signed: true", certs.ClientOptions{Enabled: true}, true},
		"a full name in capitals":    {own, named("Router.Test."), true},
		"an address":                 {own, named("127.0.0.1"), true},
		"a key of Ed25519":           {fmt.Sprintf("cert_file: %s, key_file: %s", unusual.CertFile, unusual.KeyFile), withCA, true},
		"another name":               {own, named("envoy.test"), false},
		"another authority":          {own, certs.ClientOptions{Enabled: true, CAFile: others.CAFile}, false},
		"certificates on both sides": {demand, issuedBy(ours), true},
		"no client certificate":      {demand, withCA, false},
		"a stranger's certificate":   {demand, issuedBy(others), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := start(t, setup{
				replicas: 1, sim: fast(), config: "tls: {" + c.router + "}\n", envoy: envoy.Options{TLS: c.envoy},
			})
			for i := range 4 {
				if a := st.chat(firstTurn(i), 1); a.status != 200 {
					t.Errorf("status %d", a.status)
				}
			}
			if c.hint {
				st.wantReasons(4, 1)
			} else if r := st.reasons(); len(r) > 0 {
				t.Errorf("the router was reached: %v", r)
			}
		})
	}
}
