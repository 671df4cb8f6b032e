package testenv

import (
	"net"
	"strconv"
	"testing"

	"warmroute/render/testkit/must"
)

// TestProcessesGetPortsOfTheirOwn: a claim stands until its process ends, as
// two claims of one process do.
func TestProcessesGetPortsOfTheirOwn(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := must.Get(claimBlock())(t)
	b := must.Get(claimBlock())(t)
	if a.first == b.first {
		t.Fatalf("two claims of the block at %d", a.first)
	}
}

func TestPortsAreFreeAndNotHandedOutTwice(t *testing.T) {
	b := &portBlock{first: firstPort - blockSize} // no process claims it
	l := must.Get(net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(b.first+1)))(t)
	defer l.Close()
	seen := map[int]bool{b.first + 1: true}
	for range 3 {
		got := must.Get(b.take(50))(t)
		for _, port := range got {
			if seen[port] {
				t.Fatalf("port %d is taken", port)
			}
			seen[port] = true
		}
	}
	if _, err := b.take(blockSize); err == nil {
		t.Error("more ports than there are free")
	}
}
