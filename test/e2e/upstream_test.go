package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// caseHeader names a request, so that its arrival can be found.
const caseHeader = "X-Case"

// front stands before a simulated replica. Requests that name a case end here
// and are kept byte for byte; all others are the replica's.
type front struct {
	addr  string
	proxy http.Handler
	srv   *http.Server
	seen  *arrivals
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

// before puts a front before a replica.
func (a *arrivals) before(t *testing.T, replica string) *front {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: replica})
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // no log
	f := &front{addr: lis.Addr().String(), seen: a, proxy: proxy}
	f.srv = &http.Server{Handler: f}
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.srv.Serve(lis) }) // ends with Close
	t.Cleanup(wg.Wait)
	t.Cleanup(f.die)
	return f
}

// die closes the port and every connection.
func (f *front) die() { _ = f.srv.Close() }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(caseHeader)
	if name == "" {
		f.proxy.ServeHTTP(w, r)
		return
	}
	b, err := io.ReadAll(r.Body)
	if !f.seen.add(name, arrival{at: f.addr, method: r.Method, body: b, header: r.Header.Clone(), broken: err != nil}) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"bytes":%d}`, len(b))
}
