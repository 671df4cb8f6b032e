package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"warmroute/envoy"
)

// authority signs certificates for 127.0.0.1, in a folder of files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// file is the path of a certificate ("x.pem") or key ("x.key").
func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// leaf writes a certificate for both ends of a connection.
func (a *authority) leaf(name string, serial int64) {
	a.t.Helper()
	a.issue(name, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name + ".test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// issue signs c with a's key, or with its own where there is none yet, and
// writes both files.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	check := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	check(os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	check(os.WriteFile(a.file(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	cert, err := x509.ParseCertificate(der)
	check(err)
	return cert, key
}

// TestTLSBetweenEnvoyAndTheRouter: with certificates that fit, requests get
// hints; with others they pass without, as if the router were dead.
func TestTLSBetweenEnvoyAndTheRouter(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	ours.leaf("router", 2)
	ours.leaf("envoy", 3)
	others.leaf("envoy", 4)
	own := fmt.Sprintf("cert_file: %s, key_file: %s", ours.file("router.pem"), ours.file("router.key"))
	demand := own + ", client_ca_file: " + ours.file("ca.pem")
	withCA := envoy.TLS{Enabled: true, CAFile: ours.file("ca.pem")}
	named := func(name string) envoy.TLS {
		return envoy.TLS{Enabled: true, CAFile: ours.file("ca.pem"), ServerName: name}
	}
	as := func(a *authority) envoy.TLS {
		return envoy.TLS{Enabled: true, CAFile: ours.file("ca.pem"), CertFile: a.file("envoy.pem"), KeyFile: a.file("envoy.key")}
	}
	for name, c := range map[string]struct {
		router string
		envoy  envoy.TLS
		mode   envoy.Mode
		hint   bool
	}{
		"own certificate":              {own, withCA, "", true},
		"own certificate, unverified":  {own, envoy.TLS{Enabled: true}, "", true},
		"self-signed":                  {"self_signed: true", envoy.TLS{Enabled: true}, "", true},
		"self-signed, verified":        {"self_signed: true", withCA, "", false},
		"the name that is expected":    {own, named("router.test"), "", true},
		"another name":                 {own, named("envoy.test"), "", false},
		"another authority":            {own, envoy.TLS{Enabled: true, CAFile: others.file("ca.pem")}, "", false},
		"certificates on both sides":   {demand, as(ours), "", true},
		"no client certificate":        {demand, withCA, "", false},
		"a stranger's certificate":     {demand, as(others), "", false},
		"Envoy speaks no TLS":          {own, envoy.TLS{}, "", false},
		"self-signed, bodies streamed": {"self_signed: true", envoy.TLS{Enabled: true}, envoy.FullDuplex, true},
	} {
		t.Run(name, func(t *testing.T) {
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
	a := newAuthority(t)
	a.leaf("router", 2)
	st := start(t, setup{
		replicas: 1, sim: fast(), envoy: envoy.Options{TLS: envoy.TLS{Enabled: true, CAFile: a.file("ca.pem")}},
		config: fmt.Sprintf("tls: {cert_file: %s, key_file: %s, every: 20ms}\n", a.file("router.pem"), a.file("router.key")),
	})
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	serial := func() int64 {
		c, err := tls.Dial("tcp", st.listen, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	st.chat(firstTurn(0), 1)
	if got := serial(); got != 2 {
		t.Errorf("serial %d, want 2", got)
	}
	a.leaf("router", 5)
	st.until(20*time.Second, "the new certificate is used", func() bool { return serial() == 5 })
	st.chat(firstTurn(1), 1)
	st.wantReasons(2, 1)
}
