package fleet

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"warmroute/render/testkit/must"
)

// stranger hides from net/http that a body is in memory.
type stranger struct{ io.Reader }

// counting is a connection that counts what is written to it.
type counting struct {
	net.Conn
	writes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestHeaderAndBodyAreOnePacket: a request is as many packets as its bytes fill buffers, on new
// and on used connections, and arrives whole.
func TestHeaderAndBodyAreOnePacket(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	defer srv.Close()
	var writes atomic.Int64
	tr := &http.Transport{DialContext: corks(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return counting{c, &writes}, err
	})}
	defer tr.CloseIdleConnections()
	for _, c := range []struct {
		bytes  int
		body   func(io.Reader) io.Reader
		writes int64
	}{
		{16 << 10, func(r io.Reader) io.Reader { return stranger{r} }, 1},
		{1, func(r io.Reader) io.Reader { return stranger{r} }, 1},
		{220 << 10, func(r io.Reader) io.Reader { return stranger{r} }, 7},
		{16 << 10, func(r io.Reader) io.Reader { return r }, 2}, // net/http fills its own buffer first
		{0, func(r io.Reader) io.Reader { return r }, 1},
	} {
		text := strings.Repeat("x", c.bytes)
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, c.body(strings.NewReader(text))))(t)
		req.ContentLength = int64(c.bytes)
		writes.Store(0)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatalf("%d bytes: %v", c.bytes, err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, []byte(text)) {
			t.Errorf("%d bytes: %d came back, %v", c.bytes, len(got), err)
		}
		if n := writes.Load(); n != c.writes {
			t.Errorf("%d bytes: %d writes, want %d", c.bytes, n, c.writes)
		}
	}
}

// TestClientsWithManySendsAreCorked: the others send no bodies.
func TestClientsWithManySendsAreCorked(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	for idle, want := range map[int]bool{1: false, 2: true} {
		h := must.Get(HTTPOptions{}.Client(idle))(t)
		c := must.Get(h.Transport.(*http.Transport).DialContext(t.Context(), "tcp", l.Addr().String()))(t)
		defer c.Close()
		if _, ok := c.(*corked); ok != want {
			t.Errorf("a client that keeps %d connections dials a %T", idle, c)
		}
	}
}
