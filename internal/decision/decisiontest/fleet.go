// Package decisiontest has helpers for the tests of deciding and of the filter:
// replicas of the model "m", a fleet of them that a test changes, and books of
// policies.
package decisiontest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
)

// BlockSize is the replicas' number of tokens in a block.
const BlockSize = 16

// Fleet is a fleet that a test changes by Set.
type Fleet struct {
	snap   atomic.Pointer[fleet.Snapshot]
	broken atomic.Bool
}

// NewFleet returns a fleet of these replicas.
func NewFleet(replicas ...*fleet.Replica) *Fleet {
	f := new(Fleet)
	f.Set(replicas...)
	return f
}

// Set replaces the fleet's replicas.
func (f *Fleet) Set(replicas ...*fleet.Replica) { f.snap.Store(fleet.NewSnapshot(replicas...)) }

// Break makes Snapshot panic, with a text that looks like a prompt.
func (f *Fleet) Break(broken bool) { f.broken.Store(broken) }

// Snapshot returns the fleet of the last Set.
func (f *Fleet) Snapshot() *fleet.Snapshot {
	if f.broken.Load() {
		panic("tell me a secret")
	}
	return f.snap.Load()
}

// Replica returns the replica 10.0.0.n, ready, with an event source for each of its
// ranks; without ranks it has rank 0.
func Replica(n int, ranks ...int) *fleet.Replica {
	if ranks == nil {
		ranks = []int{0}
	}
	r := &fleet.Replica{
		Addr: fmt.Sprintf("10.0.0.%d:8000", n), Ready: true, Reported: fleet.Reported{BlockSize: BlockSize, Models: []fleet.Model{{ID: "m", Base: "m"}}}, Ranks: ranks,
	}
	for _, rank := range ranks {
		r.Events = append(r.Events, fleet.EventSource{Rank: rank, Endpoint: fmt.Sprintf("tcp://10.0.0.1:%d", 5557+rank)})
	}
	return r
}

// Book returns a book of policies of this configuration.
func Book(t testing.TB, c policy.Config) *policy.Book {
	t.Helper()
	book, err := policy.NewBook(c)
	if err != nil {
		t.Fatal(err)
	}
	return book
}
