package e2e

import (
	"crypto/tls"
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
		mode   envoy.Mode
		hint   bool
	}{
		"own certificate":              {own, withCA, "", true},
		"own certificate, unverified":  {own, certs.ClientOptions{Enabled: true}, "", true},
		"self-signed":                  {"self_signed: true", certs.ClientOptions{Enabled: true}, "", true},
		"self-signed, verified":        {"self_signed: true", withCA, "", false},
		"the name that is expected":    {own, named("router.test"), "", true},
		"another name":                 {own, named("envoy.test"), "", false},
		"another authority":            {own, certs.ClientOptions{Enabled: true, CAFile: others.CAFile}, "", false},
		"certificates on both sides":   {demand, issuedBy(ours), "", true},
		"no client certificate":        {demand, withCA, "", false},
		"a stranger's certificate":     {demand, issuedBy(others), "", false},
		"Envoy speaks no TLS":          {own, certs.ClientOptions{}, "", false},
		"self-signed, bodies streamed": {"self_signed: true", certs.ClientOptions{Enabled: true}, envoy.FullDuplex, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := start(t, setup{
				replicas: 1, sim: fast(), config: "tls: {" + c.router + "}\n", envoy: envoy.Options{TLS: c.envoy, Mode: c.mode},
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

// TestCertificatesAreRenewedUnderEnvoy: new files are used for new connections,
// without a restart and without a request that misses its hint.
func TestCertificatesAreRenewedUnderEnvoy(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	first := ca.Issue("router")
	st := start(t, setup{
		replicas: 1, sim: fast(), envoy: envoy.Options{TLS: certs.ClientOptions{Enabled: true, CAFile: ca.CAFile}},
		config: fmt.Sprintf("tls: {cert_file: %s, key_file: %s}\n", first.CertFile, first.KeyFile),
	})
	serial := func() int64 {
		c, err := tls.Dial("tcp", st.listen, &tls.Config{RootCAs: ca.Pool, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	st.chat(firstTurn(0), 1)
	if got := serial(); got != first.Serial {
		t.Errorf("serial %d, want %d", got, first.Serial)
	}
	renewed := ca.Issue("router")
	st.until("the new certificate is used", func() bool { return serial() == renewed.Serial })
	st.chat(firstTurn(1), 1)
	st.wantReasons(2, 1)
}
