package hostile

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"warmroute/internal/kvevents/kvtest"
	"warmroute/lab/vllmsim"
)

// claimed is a Stored event of a prompt's whole blocks (see ids), hashed like no other.
func claimed(number, blocks int) kvtest.Event {
	e := kvtest.Event{Kind: kvtest.Stored, BlockSize: 16, Tokens: tokens(number, blocks)[:blocks*16]}
	for b := range blocks {
		e.Hashes = append(e.Hashes, uint64(1+number*blocks+b))
	}
	return e
}

// events opens a site with an honest replica and one whose KV events are the test's.
func events(t *testing.T) (s *site, p *kvtest.Publisher, addr string) {
	t.Helper()
	p = publisher(t)
	bad := impostor(t, publishing(p).front)
	s = open(t, setup{replicas: 1, sim: vllmsim.Options{PrefillRate: -1, DecodeRate: -1}, addresses: []string{bad.Addr()}})
	return s, p, bad.Addr()
}

// blocks is how many blocks the router has of a replica's first rank.
func (s *site) blocks(addr string) int {
	s.t.Helper()
	if r := s.replica(addr); len(r.Ranks) > 0 {
		return r.Ranks[0].Blocks
	}
	return 0
}

// TestAReplayWithoutEnd: a replay that brings batches for ever ends at a limit, and the
// live events go on after it. Before, it went on for ever and held them up.
func TestAReplayWithoutEnd(t *testing.T) {
	s, p, addr := events(t)
	s.await("the first replay", func() bool { return len(p.Requests()) > 0 })
	p.Endless(kvtest.Encoding{}.Batch(0, 0))
	p.Disconnect()
	failed := fmt.Sprintf(`warmroute_kv_replays_total{rank="0",replica=%q,what="failed"}`, addr)
	n := 0
	s.await("live events after two replays without an end", func() bool {
		n++
		p.Publish(claimed(n, 10))
		return s.metrics()[failed] >= 2 && s.blocks(addr) > 0
	})
	if n := s.lines(addr); n > 100 {
		t.Errorf("%d log lines", n)
	}
	if a, err := s.post(t.Context(), "/v1/chat/completions", []byte(hello)); err != nil || a.status != http.StatusOK {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestThousandsOfCacheGroups: events of 5,000 cache groups are refused and counted; the memory stays, and an honest replica's blocks are indexed.
func TestThousandsOfCacheGroups(t *testing.T) {
	s, p, addr := events(t)
	before := s.resident()
	scopes := fmt.Sprintf(`warmroute_index_scopes_refused_total{replica=%q}`, addr)
	rejected := fmt.Sprintf(`warmroute_kv_batches_total{rank="0",replica=%q,result="rejected"}`, addr)
	publish := func(group int) {
		e := claimed(group, 4)
		e.Group = &group
		p.Publish(e)
	}
	for group := range 1024 {
		publish(group)
	}
	s.await("refused scopes", func() bool { return s.metrics()[scopes] > 0 })
	s.await("the note", func() bool { return strings.Contains(s.page("/readyz"), "index.max_scopes allows no more") })
	for group := 1024; group < 5000; group++ {
		publish(group)
	}
	s.await("impossible groups to be refused", func() bool { return s.metrics()[rejected] > 0 })
	if grown := s.resident() - before; grown > 128<<20 {
		t.Errorf("%d MiB more memory", grown>>20)
	}
	if n := s.lines(addr); n > 100 {
		t.Errorf("%d log lines", n)
	}
	s.await("the honest replica's blocks", func() bool {
		if _, err := s.post(t.Context(), "/v1/completions", ids(1, 20)); err != nil {
			t.Fatal(err)
		}
		return s.blocks(s.sims[0].Addr()) > 0
	})
}

// TestImpossibleBlockSizes: a batch with such blocks is refused and counted, whatever the
// size, and the replica has no blocks.
func TestImpossibleBlockSizes(t *testing.T) {
	addrs := map[int]string{}
	var all []string
	for _, size := range []int{0, -1, 1 << 62} {
		p := publisher(t)
		addrs[size] = impostor(t, publishing(p).front).Addr()
		all = append(all, addrs[size])
		e := claimed(1, 1)
		e.BlockSize = size
		p.Publish(e)
	}
	s := open(t, setup{replicas: 1, sim: quick(), addresses: all})
	for size, addr := range addrs {
		rejected := fmt.Sprintf(`warmroute_kv_batches_total{rank="0",replica=%q,result="rejected"}`, addr)
		s.await(fmt.Sprintf("a batch with blocks of %d tokens to be refused", size), func() bool { return s.metrics()[rejected] > 0 })
		if n := s.blocks(addr); n != 0 {
			t.Errorf("blocks of %d tokens: %d are indexed", size, n)
		}
	}
	s.hinted()
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
	s.await("the lack", func() bool { return s.lines("too many open files") > 0 })
	for range 50 {
		s.hinted()
	}
	if n := s.lines("too many open files"); n > 100 {
		t.Errorf("%d log lines", n)
	}
	limit("1024")
	n := 0
	connected := fmt.Sprintf(`warmroute_kv_connected{rank="0",replica=%q}`, addr)
	s.await("the replica's events", func() bool {
		n++
		p.Publish(claimed(n, 10))
		return s.blocks(addr) > 0 && s.metrics()[connected] == 1
	})
	s.hinted()
}
