// Package certstest makes an authority and certificates for tests. It writes
// only below the test's own folder; tests share nothing.
package certstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates and numbers them: its own is 1. Not for
// concurrent use.
type Authority struct {
	CAFile string         // its own certificate, PEM
	Pool   *x509.CertPool // the same for clients in process
	Begins time.Time      // of the next certificates; zero = 1970, for tests with any clock
	Ends   time.Time      // zero = a day from now

	t      testing.TB
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64 // of the last certificate
}

// Pair is a certificate and its key, PEM.
type Pair struct {
	CertFile, KeyFile string
	Serial            int64
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), Pool: x509.NewCertPool()}
	a.key = a.newKey()
	der := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, &a.key.PublicKey)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.CAFile = cert, a.write("ca.pem", "CERTIFICATE", der)
	a.Pool.AddCert(cert)
	return a
}

// Issue writes a certificate for servers and clients, and its key, in place of
// an earlier one of that name. It is for localhost, 127.0.0.1 and name.test.
func (a *Authority) Issue(name string) Pair {
	a.t.Helper()
	return a.IssueFor(name, a.newKey(), x509.KeyUsageDigitalSignature)
}

// IssueFor is Issue for a key and what it may be used for.
func (a *Authority) IssueFor(name string, key crypto.Signer, usage x509.KeyUsage) Pair {
	a.t.Helper()
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	der := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost", name + ".test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true, KeyUsage: usage,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key.Public())
	return Pair{CertFile: a.write(name+".pem", "CERTIFICATE", der), KeyFile: a.write(name+".key", "PRIVATE KEY", secret), Serial: a.serial}
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// sign numbers c and signs it with a's key, the first one as its own parent.
func (a *Authority) sign(c *x509.Certificate, key crypto.PublicKey) []byte {
	a.t.Helper()
	a.serial++
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(a.serial), a.Begins, a.Ends
	if a.Begins.IsZero() {
		c.NotBefore = time.Unix(0, 0)
	}
	if a.Ends.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}
