package decision

import (
	"fmt"
	"sync/atomic"
	"testing"

	"warmroute/internal/fleet"
	"warmroute/internal/policy"
)

// fakeFleet is a fleet that changes when told to.
type fakeFleet struct {
	snap atomic.Pointer[fleet.Snapshot]
}

func (f *fakeFleet) Snapshot() *fleet.Snapshot { return f.snap.Load() }

func (f *fakeFleet) set(replicas ...*fleet.Replica) { f.snap.Store(fleet.NewSnapshot(replicas...)) }

const blockSize = 16

func replica(n int, ranks ...int) *fleet.Replica {
	if ranks == nil {
		ranks = []int{0}
	}
	return &fleet.Replica{
		Addr: fmt.Sprintf("10.0.0.%d:8000", n), Ready: true, BlockSize: blockSize, Ranks: ranks,
		Models: []fleet.Model{{ID: "m", Base: "m"}}, Events: eventsOf(ranks),
	}
}

func eventsOf(ranks []int) (out []fleet.EventSource) {
	for _, rank := range ranks {
		out = append(out, fleet.EventSource{Rank: rank, Endpoint: fmt.Sprintf("tcp://10.0.0.1:%d", 5557+rank)})
	}
	return out
}

func newBook(t testing.TB, c policy.Config) *policy.Book {
	t.Helper()
	book, err := policy.NewBook(c)
	if err != nil {
		t.Fatal(err)
	}
	return book
}
