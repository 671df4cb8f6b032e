package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// caseHeader names a request, so that its arrival can be found.
const caseHeader = "X-Case"

// front stands before a simulated replica, until it dies.
type front struct {
	addr string
	die  func() // closes the port and every connection
}

// inFront puts a handler before a replica, which it has in pass.
func inFront(t *testing.T, replica string, handle func(w http.ResponseWriter, r *http.Request, pass http.Handler)) front {
	t.Helper()
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: replica})
	pass.FlushInterval = -1
	pass.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // no log: either side may go away
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, pass) }))
	f := front{addr: srv.Listener.Addr().String(), die: func() { srv.CloseClientConnections(); srv.Close() }}
	t.Cleanup(f.die)
	return f
}

// arrivals are the requests all fronts have got, by case.
type arrivals struct {
	mu   sync.Mutex
	by   map[string][]arrival
	drop map[string]bool // cases whose next request is read and not answered
}

// arrival is one request as an upstream got it.
type arrival struct {
	at     string // address of the front
	method string
	body   []byte
	header http.Header
	broken bool // the body did not come to its end
}

func newArrivals() *arrivals {
	return &arrivals{by: map[string][]arrival{}, drop: map[string]bool{}}
}

// add keeps an arrival and reports whether to answer it.
func (a *arrivals) add(name string, one arrival) (answer bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[name] = append(a.by[name], one)
	answer = !a.drop[name]
	delete(a.drop, name)
	return answer
}

// dropNext has the next request of a case read to its end and its connection
// closed without an answer.
func (a *arrivals) dropNext(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop[name] = true
}

// take returns the whole requests of a case, once.
func (a *arrivals) take(name string) []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []arrival
	for _, one := range a.by[name] {
		if !one.broken {
			out = append(out, one)
		}
	}
	delete(a.by, name)
	return out
}

// cameTo is the address to which a request came.
func cameTo(r *http.Request) string {
	return r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
}

// before puts a front before a replica. Requests that name a case end there and are kept byte for
// byte; all others are the replica's.
func (a *arrivals) before(t *testing.T, replica string) front {
	t.Helper()
	return inFront(t, replica, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		name := r.Header.Get(caseHeader)
		if name == "" {
			pass.ServeHTTP(w, r)
			return
		}
		b, err := io.ReadAll(r.Body)
		if !a.add(name, arrival{at: cameTo(r), method: r.Method, body: b, header: r.Header.Clone(), broken: err != nil}) {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"bytes":%d}`, len(b))
	})
}
