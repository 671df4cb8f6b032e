package hostile

import (
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// claimed is a Stored event of ten blocks, hashed like no other number's.
func claimed(number int) kvtest.Event {
	const blocks = 10
	e := kvtest.Event{Kind: kvtest.Stored, BlockSize: 16, Tokens: make([]uint32, blocks*16)}
	for i := range e.Tokens {
		e.Tokens[i] = uint32(number*331+i*7) % 30_000
	}
	for b := range blocks {
		e.Hashes = append(e.Hashes, uint64(1+number*blocks+b))
	}
	return e
}

// events opens a site with an honest replica and one whose KV events are the test's.
func events(t *testing.T) (s *site, p *kvtest.Publisher, addr string) {
	t.Helper()
	p = must.Get(kvtest.Start(kvtest.Options{}))(t)
	t.Cleanup(p.Close)
	o := vllmsim.Options{Events: "127.0.0.1:0", Replay: "127.0.0.1:0", PrefillRate: -1, DecodeRate: -1}
	o.Front = func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/kv_event_sources" {
				api.ServeHTTP(w, r)
				return
			}
			fmt.Fprintf(w, `{"0":{"endpoint":%q,"replay_endpoint":%q}}`, p.Endpoint(), p.ReplayEndpoint())
		})
	}
	sim := must.Get(vllmsim.New(o))(t)
	testenv.Run(t, sim.Run)
	return open(t, setup{replicas: 1, sim: quick(), addresses: []string{sim.Addr()}}), p, sim.Addr()
}

// TestNoFileDescriptors: a router that can open no further file descriptor goes on with
// the connections that it has, says so in a bounded number of lines, and follows the
// replica's events again once it can.
func TestNoFileDescriptors(t *testing.T) {
	s, p, addr := events(t)
	s.hinted()
	limit := func(soft string) {
		if out, err := exec.Command("prlimit", fmt.Sprintf("--pid=%d", s.router.PID()), "--nofile="+soft+":").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	limit("10") // fewer than it has: those stay open
	p.Disconnect()
	s.await("the lack", func() bool { return s.logLines("too many open files") > 0 })
	for range 50 {
		s.hinted()
	}
	if n := s.logLines("too many open files"); n > 100 {
		t.Errorf("%d log lines", n)
	}
	limit("1024")
	n, rank := 0, fmt.Sprintf(`rank="0",replica=%q`, addr)
	s.await("the replica's events", func() bool {
		n++
		p.Publish(claimed(n))
		m := s.metrics()
		return m[`warmroute_kv_batches_total{`+rank+`,result="applied"}`] > 0 && m[`warmroute_kv_connected{`+rank+`}`] == 1
	})
	s.hinted()
}
