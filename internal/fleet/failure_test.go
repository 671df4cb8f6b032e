package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmroute/internal/certs"
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
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
