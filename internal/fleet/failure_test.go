package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/render/testkit/must"
)

// TestFailuresInWords: what an operator reads of a replica that does not answer says what is
// wrong there, without URLs, addresses twice and names of system calls.
func TestFailuresInWords(t *testing.T) {
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hung.Close()
	aborts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer aborts.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	ca := certstest.New(t)
	signer := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	serves := func(own certstest.Pair, suites ...uint16) *httptest.Server {
		pair := must.Get(tls.LoadX509KeyPair(own.CertFile, own.KeyFile))(t)
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, CipherSuites: suites}
		if len(suites) > 0 {
			s.TLS.MaxVersion = tls.VersionTLS12
		}
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	signs := serves(ca.IssueFor("signs", signer, x509.KeyUsageCertSign))
	old := serves(ca.Issue("old"), tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA)
	other := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer other.Close()
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			fmt.Fprint(c, "220 mail.example ESMTP\r\n\r\n")
			c.Close()
		}
	}()
	for _, c := range []struct {
		addr    string
		options HTTPOptions
		limit   time.Duration
		want    string
	}{
		{addr: "127.0.0.1:1", want: "unreachable: connection refused: nothing listens at 127.0.0.1:1"},
		{addr: "[::1]:1", want: "unreachable: connection refused: nothing listens at [::1]:1"},
		{addr: hostOf(hung), limit: 50 * time.Millisecond, want: "timeout: no answer in time from ADDR"},
		{addr: hostOf(aborts), want: "unreachable: ADDR closed the connection before its answer was complete"},
		{addr: other.Addr().String(), want: "unreachable: what listens at ADDR does not speak HTTP"},
		{addr: hostOf(plain), options: HTTPOptions{TLS: certs.ClientOptions{Enabled: true}}, want: "unreachable: ADDR answers without TLS, and fleet.tls is on"},
		{addr: hostOf(secure), options: HTTPOptions{TLS: certs.ClientOptions{Enabled: true}}, want: "unreachable: the certificate of ADDR is refused: x509: certificate signed by unknown authority"},
		{addr: hostOf(signs), options: HTTPOptions{TLS: certs.ClientOptions{Enabled: true, CAFile: ca.CAFile}}, want: "unreachable: the certificate of ADDR is refused: its key usage lacks digital signatures, which Envoy requires"},
		{addr: hostOf(old), options: HTTPOptions{TLS: certs.ClientOptions{Enabled: true, CAFile: ca.CAFile}}, want: "unreachable: Get \"https://ADDR/v1/models\": remote error: tls: handshake failure"},
	} {
		client, err := newClient(Options{HTTP: c.options})
		if err != nil {
			t.Fatal(err)
		}
		limit := c.limit
		if limit == 0 {
			limit = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err = client.do(ctx, http.MethodGet, c.addr, "/v1/models", nil)
		cancel()
		if want := strings.ReplaceAll(c.want, "ADDR", c.addr); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if err := transportFailure("a:1", &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}); err.Error() != "unreachable: no network route to a:1" || !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("%v", err)
	}
	if err := transportFailure("a:1", errors.New("something new")); err.Error() != "unreachable: something new" {
		t.Errorf("%v", err)
	}
}
