package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"warmroute/internal/kvevents/kvtest"
	"warmroute/lab/vllmsim"
)

// impostor is a simulated replica whose HTTP API goes through front.
func impostor(t *testing.T, front func(http.Handler) http.Handler) *vllmsim.Sim {
	t.Helper()
	sim, err := vllmsim.New(vllmsim.Options{Events: "127.0.0.1:0", Replay: "127.0.0.1:0", PrefillRate: -1, DecodeRate: -1, Front: front})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { _ = sim.Run(ctx) })
	return sim
}

// answering replaces one page of a replica, and counts how often it is read.
type answering struct {
	path string
	page func(w http.ResponseWriter)
	n    atomic.Int64
}

func (a *answering) front(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != a.path {
			api.ServeHTTP(w, r)
			return
		}
		a.n.Add(1)
		a.page(w)
	})
}

// publishing is a /kv_event_sources with one publisher.
func publishing(p *kvtest.Publisher) *answering {
	return &answering{path: "/kv_event_sources", page: func(w http.ResponseWriter) {
		fmt.Fprintf(w, `{"0":{"endpoint":%q,"replay_endpoint":%q}}`, p.Endpoint(), p.ReplayEndpoint())
	}}
}

func publisher(t *testing.T) *kvtest.Publisher {
	t.Helper()
	p, err := kvtest.Start(kvtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// page reads a page of the router's admin port.
func (s *site) page(path string) string {
	s.t.Helper()
	resp, err := http.Get("http://" + s.admin + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// lines is how many lines of the router's log name something.
func (s *site) lines(name string) (n int) {
	s.t.Helper()
	b, err := os.ReadFile(s.router.Log)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, name) {
			n++
		}
	}
	return n
}

// replicaPage has the fields of /debug/replicas that a test reads.
type replicaPage struct {
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
	None    string `json:"no_events"`
	Cached  struct {
		Suspect bool `json:"suspect"`
	} `json:"cached_tokens"`
	Ranks []struct {
		Blocks int `json:"blocks"`
	} `json:"ranks"`
}

func (s *site) replica(addr string) replicaPage {
	s.t.Helper()
	var all struct{ Replicas []replicaPage }
	if err := json.Unmarshal([]byte(s.page("/debug/replicas")), &all); err != nil {
		s.t.Fatal(err)
	}
	for _, r := range all.Replicas {
		if r.Address == addr {
			return r
		}
	}
	return replicaPage{}
}

func tokens(number, blocks int) []uint32 {
	all := make([]uint32, blocks*16+1)
	for i := range all {
		all[i] = uint32(number*331+i*7) % 30_000
	}
	return all
}
