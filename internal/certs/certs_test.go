package certs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{key: key}
	der := a.der(t, name, 1, key, true)
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a authority) der(t *testing.T, name string, serial int64, key *ecdsa.PrivateKey, ca bool) []byte {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour), IsCA: ca, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// issue returns a certificate and key as PEM.
func (a authority) issue(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return toPEM("CERTIFICATE", a.der(t, "leaf", serial, k, false)), toPEM("PRIVATE KEY", raw)
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func toPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// handshake connects a client to a server and returns the serial number of the
// certificate the server showed.
func handshake(server, client *tls.Config) (serial int64, err error) {
	lis, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		return 0, err
	}
	defer lis.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		done <- err
	}()
	conn, err := tls.Dial("tcp", lis.Addr().String(), client)
	if err != nil {
		<-done
		return 0, err
	}
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 1)) // until the server is done: TLS 1.3 refuses a client's certificate late
	if err := <-done; err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// TestRenewalWithoutRestart replaces the files under a running Source, with
// garbage in between.
func TestRenewalWithoutRestart(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	cert1, key1 := ca.issue(t, 11)
	cert2, key2 := ca.issue(t, 22)
	certFile, keyFile := write(t, filepath.Join(dir, "cert"), cert1), write(t, filepath.Join(dir, "key"), key1)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, err := New(Options{CertFile: certFile, KeyFile: keyFile}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		server := s.Server("h2") // made once, as a gRPC server does
		client := &tls.Config{RootCAs: ca.pool(), ServerName: "localhost", NextProtos: []string{"h2"}, Time: func() time.Time { return time.Unix(1, 0) }}
		want := func(serial int64) {
			t.Helper()
			if got, err := handshake(server, client); err != nil || got != serial {
				t.Errorf("certificate %d, %v; want %d", got, err, serial)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		tick := func() { time.Sleep(11 * time.Second); synctest.Wait() }
		want(11)
		write(t, certFile, cert2) // the key does not fit yet
		tick()
		tick()
		want(11)
		write(t, keyFile, key2)
		tick()
		want(22)
		write(t, certFile, []byte("garbage"))
		tick()
		if err := os.Remove(keyFile); err != nil {
			t.Fatal(err)
		}
		tick()
		want(22)
		cancel()
		wg.Wait()
		if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
			t.Errorf("%d errors, want one per cause:\n%s", n, log.String())
		}
		if strings.Contains(log.String(), "PRIVATE") {
			t.Error("the log holds a key")
		}
	})
}

func TestClientsMustShowACertificate(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	dir := t.TempDir()
	cert, key := ca.issue(t, 5)
	o := Options{
		CertFile: write(t, filepath.Join(dir, "cert"), cert), KeyFile: write(t, filepath.Join(dir, "key"), key),
		ClientCAFile: write(t, filepath.Join(dir, "ca"), toPEM("CERTIFICATE", ca.cert.Raw)),
	}
	s, err := New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := func(a authority) []tls.Certificate {
		c, k := a.issue(t, 9)
		p, err := tls.X509KeyPair(c, k)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{p}
	}
	for name, tt := range map[string]struct {
		certs []tls.Certificate
		ok    bool
	}{"ours": {pair(ca), true}, "none": {nil, false}, "a stranger's": {pair(other), false}} {
		_, err := handshake(s.Server("h2"), &tls.Config{RootCAs: ca.pool(), ServerName: "localhost", Certificates: tt.certs})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSelfSignedIsRenewedAtHalfItsLife(t *testing.T) {
	s, err := New(Options{SelfSigned: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(s.Server("h2"), &tls.Config{InsecureSkipVerify: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(s.Server("h2"), &tls.Config{ServerName: "localhost", RootCAs: x509.NewCertPool()}); err == nil {
		t.Error("somebody vouched for it")
	}
	start := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{{selfSignedLife/2 - time.Hour, false}, {selfSignedLife/2 + time.Hour, true}, {selfSignedLife/2 + 2*time.Hour, false}} {
		s.now = func() time.Time { return start.Add(tt.after) }
		if got, err := s.refresh(); err != nil || got != tt.want {
			t.Errorf("after %v: renewed %v, %v", tt.after, got, err)
		}
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for want, o := range map[string]Options{
		"self_signed: true excludes": {SelfSigned: true, CertFile: "x", KeyFile: "y"},
		"key_file: is missing":       {CertFile: "x"},
		"cert_file: is missing":      {KeyFile: "x"},
		"client_ca_file: client":     {ClientCAFile: "x"},
		"every: -1s is negative":     {SelfSigned: true, Every: -time.Second},
		"certs: no TLS":              {},
		"certs: open /nowhere":       {CertFile: "/nowhere", KeyFile: "/nowhere"},
	} {
		if _, err := New(o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
