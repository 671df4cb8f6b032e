package fleet

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is a fake of the wire, an http.RoundTripper that works in virtual
// time: replicas answer at once, refuse, or never answer.
type network struct {
	mu       sync.Mutex
	replicas map[string]*fakeReplica
	asked    map[string]int // requests by address, and by path
}

type fakeReplica struct {
	refuse, hang bool
	status       map[string]int    // path → status other than 200
	answer       map[string]string // path → body; a path that is not here is 404
	slow         map[string]bool   // paths that hang
}

// replica returns a vLLM 0.32 that serves model "m", block size 16.
func fake(start int, running float64) *fakeReplica {
	return &fakeReplica{status: map[string]int{}, slow: map[string]bool{}, answer: map[string]string{
		"/v1/models":             `{"data":[{"id":"m","root":"/m"}]}`,
		"/health":                "",
		"/version":               `{"version":"0.32.0"}`,
		"/kv_event_sources":      `{"0":{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558","topic":"kv"}}`,
		"/v1/completions/render": `{}`,
		"/metrics":               metricsText(start, running, 100),
	}}
}

func metricsText(start int, running, queries float64) string {
	return fmt.Sprintf("process_start_time_seconds %d\nvllm:num_requests_running{engine=\"0\"} %v\n"+
		"vllm:prefix_cache_queries_total{engine=\"0\"} %v\nvllm:cache_config_info{block_size=\"16\",engine=\"0\",prefix_caching_hash_algo=\"sha256\"} 1\n", start, running, queries)
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.asked[req.URL.Host]++
	n.asked[req.URL.Path]++
	n.mu.Unlock()
	for {
		code, body, hangs := n.answer(req.URL.Host, req.URL.Path)
		switch {
		case hangs: // it answers late if it recovers in time
			select {
			case <-req.Context().Done():
				return nil, req.Context().Err()
			case <-time.After(10 * time.Millisecond):
				continue
			}
		case code == 0:
			return nil, syscall.ECONNREFUSED
		}
		return &http.Response{StatusCode: code, Body: io.NopCloser(bytes.NewBufferString(body)), Request: req, Header: http.Header{}}, nil
	}
}

// answer is a replica's current answer; code 0 is a refused connection.
func (n *network) answer(host, path string) (code int, body string, hangs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.replicas[host]
	if r == nil || r.refuse {
		return 0, "", false
	}
	body, ok := r.answer[path]
	code = http.StatusNotFound
	if ok {
		code = http.StatusOK
	}
	if c := r.status[path]; c != 0 {
		code = c
	}
	return code, body, r.hang || r.slow[path]
}

// change runs f with the network's state held.
func (n *network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// world is a running fleet over a fake network, in a synctest bubble.
type world struct {
	*testing.T
	net   *network
	fleet *Fleet

	mu     sync.Mutex
	events []string // "joined ADDR N", "left ADDR N"
}

func start(t *testing.T, o Options, replicas map[string]*fakeReplica) *world {
	t.Helper()
	return startWith(t, o, Hooks{}, replicas)
}

// startWith is start with hooks besides those that record events.
func startWith(t *testing.T, o Options, h Hooks, replicas map[string]*fakeReplica) *world {
	t.Helper()
	w := &world{T: t, net: &network{replicas: replicas, asked: map[string]int{}}}
	o.Transport = w.net
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	h.Joined, h.Left = func(r *Replica) { w.event("joined", r) }, func(r *Replica) { w.event("left", r) }
	f := must.Get(New(o, h))(t)
	w.fleet = f
	testenv.Run(t, f.Run)
	synctest.Wait()
	w.pass(150 * time.Millisecond) // learned values are published
	return w
}

// count is how many requests an address has got, or how many there were for a path.
func (n *network) count(of string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[of]
}

func (w *world) event(what string, r *Replica) {
	// The order the package promises: offered only between Joined and Left.
	if c := w.fleet.Snapshot().Replica(r.Addr); c != nil && c.Ready {
		w.Errorf("%s %s: the snapshot offers it during the call", what, r.Addr)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %d", what, r.Addr, r.Joined))
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// take returns the events since the last call.
func (w *world) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// expect compares the events since the last call.
func (w *world) expect(want ...string) {
	w.Helper()
	if got := w.take(); !slices.Equal(got, want) {
		w.Errorf("events %q, want %q", got, want)
	}
}

func (w *world) serving(model, tenant string) []string {
	var out []string
	for _, c := range w.fleet.Snapshot().Serving(model, tenant) {
		out = append(out, c.Replica.Addr)
	}
	return out
}

func (w *world) expectServing(want ...string) {
	w.Helper()
	if got := w.serving("m", ""); !slices.Equal(got, want) {
		w.Errorf("serving %q, want %q", got, want)
	}
}

func list(addrs ...string) []ReplicaOptions {
	var out []ReplicaOptions
	for _, a := range addrs {
		out = append(out, ReplicaOptions{Address: a})
	}
	return out
}

// serveFake serves a fakeReplica over a real socket.
func serveFake(t testing.TB, r *fakeReplica) *httptest.Server {
	n := &network{replicas: map[string]*fakeReplica{}, asked: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		req.URL.Host = "x"
		n.mu.Lock()
		n.replicas["x"] = r
		n.mu.Unlock()
		resp, err := n.RoundTrip(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	}))
	t.Cleanup(s.Close)
	return s
}
