package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

// naming is a /kv_event_sources with these endpoints, one for each rank.
func naming(endpoints func() []string) *answering {
	return &answering{path: "/kv_event_sources", page: func(w http.ResponseWriter) {
		all := map[string]any{}
		for rank, e := range endpoints() {
			all[fmt.Sprint(rank)] = map[string]string{"endpoint": e}
		}
		_ = json.NewEncoder(w).Encode(all)
	}}
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

// door is a listener that counts the connections that it accepts, and closes them.
type door struct {
	net.Listener
	n atomic.Int64
}

func openDoor(t *testing.T, host string) *door {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.n.Add(1)
			c.Close()
		}
	})
	return d
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

// TestAPublisherOfGarbage: a hundred thousand batches that cannot be decoded cost the
// router tens of log lines, refusals and connections. Before, each batch was a
// line and a replay.
func TestAPublisherOfGarbage(t *testing.T) {
	p := publisher(t)
	bad := impostor(t, publishing(p).front)
	s := open(t, setup{replicas: 1, sim: vllmsim.Options{PrefillRate: -1, DecodeRate: -1}, addresses: []string{bad.Addr()}})
	label := fmt.Sprintf(`rank="0",replica=%q`, bad.Addr())
	sent := 0
	s.await("four pauses", func() bool {
		for range 20_000 {
			p.PublishRaw([]byte("no msgpack"))
			sent++
		}
		return sent >= 100_000 && s.metrics()[`warmroute_kv_interruptions_total{kind="pause",`+label+"}"] >= 4
	})
	m := s.metrics()
	if n := m["warmroute_kv_batches_total{"+label+`,result="rejected"}`]; n > 100 {
		t.Errorf("%.0f of %d batches were refused one by one", n, sent)
	}
	if n := m["warmroute_kv_replays_total{"+label+`,what="sent"}`]; n > 100 {
		t.Errorf("%.0f replays", n)
	}
	if n := s.lines(bad.Addr()); n > 100 {
		t.Errorf("%d log lines", n)
	}
	if ready := s.page("/readyz"); !strings.Contains(ready, bad.Addr()) || !strings.Contains(ready, "asked again after") {
		s.await("the note", func() bool { return strings.Contains(s.page("/readyz"), "asked again after") })
	}
	if a, err := s.post(t.Context(), "/v1/chat/completions", []byte(hello)); err != nil || a.status != http.StatusOK {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestAReplicaAimsConnections: 1,024 ranks that name a port of another host and one of
// its own make no connection there, and a few here. Before, 5,147 in 12 s.
func TestAReplicaAimsConnections(t *testing.T) {
	elsewhere, here := openDoor(t, "127.0.0.2"), openDoor(t, "127.0.0.1")
	sources := naming(func() []string {
		all := make([]string, 1024)
		for i := range all {
			all[i] = "tcp://" + here.Addr().String()
			if i%2 == 0 {
				all[i] = "tcp://" + elsewhere.Addr().String()
			}
		}
		return all
	})
	scrapes := &answering{path: "/metrics"}
	aiming := impostor(t, func(api http.Handler) http.Handler {
		scrapes.page = func(w http.ResponseWriter) { api.ServeHTTP(w, get("/metrics")) }
		return scrapes.front(sources.front(api))
	})
	s := open(t, setup{replicas: 1, addresses: []string{aiming.Addr()}})
	s.await("ten scrapes", func() bool { return scrapes.n.Load() >= 10 })
	if n := elsewhere.n.Load(); n != 0 {
		t.Errorf("%d connections to another host", n)
	}
	if n, most := here.n.Load(), scrapes.n.Load()+10; n > most {
		t.Errorf("%d connections to the named port, want at most %d", n, most)
	}
	if got := s.replica(aiming.Addr()); !strings.Contains(got.None, "not on the replica's own host") && !strings.Contains(got.None, "belongs to rank") {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(s.page("/readyz"), "event sources that it reports are not used") {
		t.Error("/readyz does not say so")
	}
}

func get(path string) *http.Request {
	r, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// TestAReplicaNamesAnothersPublisher: it is refused, and has none of its blocks.
func TestAReplicaNamesAnothersPublisher(t *testing.T) {
	honest := impostor(t, nil)
	var armed atomic.Bool // once its owner has the publisher: the first keeps it
	liar := impostor(t, naming(func() []string {
		if !armed.Load() {
			return nil
		}
		return []string{honest.EventEndpoint(0)}
	}).front)
	owner, other := honest.Addr(), liar.Addr()
	s := open(t, setup{addresses: []string{owner, other},
		config: fmt.Sprintf("fleet: {replicas: [{address: %q}, {address: %q}]}\n", owner, other)})
	armed.Store(true)
	s.await("the owner's blocks", func() bool {
		if _, err := s.post(t.Context(), "/v1/completions", ids(1, 20)); err != nil {
			t.Fatal(err)
		}
		r := s.replica(owner)
		return len(r.Ranks) > 0 && r.Ranks[0].Blocks > 0
	})
	s.await("the refusal", func() bool { return strings.Contains(s.replica(other).None, "belongs to rank 0 of "+owner) })
	if got := s.replica(other); len(got.Ranks) != 1 || got.Ranks[0].Blocks != 0 {
		t.Errorf("%+v", got)
	}
}

// ids is a completion of that many blocks of 16 token ids and one more, none of which
// another number has.
func ids(number, blocks int) []byte {
	b, err := json.Marshal(map[string]any{"model": "sim", "max_tokens": 1, "prompt": tokens(number, blocks)})
	if err != nil {
		panic(err)
	}
	return b
}

func tokens(number, blocks int) []uint32 {
	all := make([]uint32, blocks*16+1)
	for i := range all {
		all[i] = uint32(number*331+i*7) % 30_000
	}
	return all
}

// TestALiarIsNamedWithin50Requests: a replica that claims every prompt and holds none
// draws them until it is found out, and none of them as warm after that.
func TestALiarIsNamedWithin50Requests(t *testing.T) {
	const prompts, blocks = 120, 20
	p := publisher(t)
	for n := range prompts {
		e := kvtest.Event{Kind: kvtest.Stored, BlockSize: 16, Tokens: tokens(n, blocks)[:blocks*16]}
		for b := range blocks {
			e.Hashes = append(e.Hashes, uint64(1+n*blocks+b))
		}
		p.Publish(e)
	}
	var served, scraped atomic.Int64
	liar := impostor(t, func(api http.Handler) http.Handler {
		return publishing(p).front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/completions") {
				served.Add(1)
			}
			if r.URL.Path == "/metrics" {
				scraped.Add(1)
			}
			api.ServeHTTP(w, r)
		}))
	})
	s := open(t, setup{replicas: 2, sim: vllmsim.Options{PrefillRate: -1, DecodeRate: -1}, addresses: []string{liar.Addr()}})
	s.await("its claims, and a first look at its counters", func() bool {
		r := s.replica(liar.Addr())
		return scraped.Load() >= 5 && len(r.Ranks) > 0 && r.Ranks[0].Blocks >= prompts*blocks
	})
	send := func(from, to int) (warm int) {
		before := s.reasons()["warm"]
		for n := from; n < to; n++ {
			a, err := s.post(t.Context(), "/v1/completions", ids(n, blocks))
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		return s.reasons()["warm"] - before
	}
	if warm := send(0, 50); warm < 10 || served.Load() < 10 { // fewer do not suffice to name it
		t.Fatalf("%d of 50 were warm, %d came to the liar: the test shows nothing", warm, served.Load())
	}
	s.await("the liar's name", func() bool { return s.replica(liar.Addr()).Cached.Suspect })
	before := served.Load()
	if warm := send(50, prompts); warm != 0 || served.Load()-before > 50 {
		t.Errorf("after it was found out, %d of 70 were warm, and %d came to it", warm, served.Load()-before)
	}
	if n := s.lines("counts as holding nothing"); n != 1 {
		t.Errorf("%d log lines name it", n)
	}
}

// endless writes until it is cut off, and counts.
type endless struct{ most atomic.Int64 }

func (e *endless) page(w http.ResponseWriter) {
	chunk := []byte(strings.Repeat("vllm:num_requests_running{engine=\"0\"} 1\n", 1000))
	n := int64(0)
	for {
		k, err := w.Write(chunk)
		n += int64(k)
		if err != nil {
			break
		}
	}
	for most := e.most.Load(); n > most && !e.most.CompareAndSwap(most, n); most = e.most.Load() {
	}
}

// TestAnswersWithoutEnd: of each page that a replica never ends, some megabytes are
// read; replicas that answer never or without end take none of the others' place.
func TestAnswersWithoutEnd(t *testing.T) {
	const bound = 32 << 20 // the limits are 4 and 8 MiB, and sockets have buffers
	var addrs []string
	pages := map[string]*endless{}
	reads := map[string]*answering{}
	for _, path := range []string{"/metrics", "/v1/models", "/version", "/kv_event_sources", "/v1/completions/render"} {
		pages[path] = new(endless)
		reads[path] = &answering{path: path, page: pages[path].page}
		addrs = append(addrs, impostor(t, reads[path].front).Addr())
	}
	hang := make(chan struct{})
	for path := range pages {
		mute := &answering{path: path, page: func(http.ResponseWriter) { <-hang }}
		addrs = append(addrs, impostor(t, mute.front).Addr())
	}
	t.Cleanup(func() { close(hang) }) // before the impostors wait for their answers
	s := open(t, setup{replicas: 1, sim: vllmsim.Options{PrefillRate: -1, DecodeRate: -1}, addresses: addrs})
	for path, a := range reads {
		s.await("two reads of "+path, func() bool { return a.n.Load() >= 2 || path == "/v1/completions/render" && a.n.Load() >= 1 })
		if n := pages[path].most.Load(); n > bound {
			t.Errorf("%s: %d bytes were read", path, n)
		}
	}
	if !s.replica(s.sims[0].Addr()).Ready {
		t.Error("the honest replica is not ready")
	}
	if n := s.lines("level=WARN") + s.lines("level=ERROR"); n > 200 {
		t.Errorf("%d warnings", n)
	}
}
