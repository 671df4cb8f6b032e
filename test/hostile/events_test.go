package hostile

import (
	"fmt"
	"os/exec"
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
