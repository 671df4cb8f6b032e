package filter

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// fakeIndex holds a number of blocks of every prompt per holder.
type fakeIndex struct {
	mu     sync.Mutex
	ids    map[index.Holder]index.HolderID
	blocks map[index.Holder]int
}

func (x *fakeIndex) ID(h index.Holder) index.HolderID {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok := x.ids[h]
	if !ok {
		id = index.HolderID(len(x.ids))
		x.ids[h] = id
	}
	return id
}

func (x *fakeIndex) FindPrompt(f *index.Found, _ index.Scope, keys []prefixhash.Key, _ index.Prompt) {
	var dst []index.Match
	x.mu.Lock()
	defer x.mu.Unlock()
	for h, n := range x.blocks {
		n := int32(min(n, len(keys)))
		dst = append(dst, index.Match{ID: x.ids[h], Blocks: n, Lower: n, Storage: n})
	}
	f.Set(dst)
}

// Why knows the blocks alone.
func (x *fakeIndex) Why(index.HolderID, index.Scope, *index.Trail) index.Ending {
	return index.Ending{}
}

// Guess, Answered, Trust and ExplainGroups know of no groups.
// Partial: the replicas have one group.
func (x *fakeIndex) Partial(index.HolderID, index.Scope) bool { return false }

func (x *fakeIndex) BlockSize(index.HolderID, string, string) int { return 0 }

func (x *fakeIndex) Trust(index.HolderID, string, string) (index.GroupTrust, bool) {
	return index.GroupTrust{}, false
}
func (x *fakeIndex) Disprove(index.HolderID, index.Scope, []prefixhash.Key, int, time.Time) bool {
	return false
}
func (x *fakeIndex) Answered(index.HolderID, index.Scope, *index.Guess, int, bool) {}
func (x *fakeIndex) Guess(index.HolderID, index.Scope, []prefixhash.Key, index.Prompt) index.Guess {
	return index.Guess{}
}
func (x *fakeIndex) ExplainGroups(index.HolderID, index.Scope, index.Prompt) (index.Groups, bool) {
	return index.Groups{}, false
}

// fakeTokens gives every prompt n tokens.
type fakeTokens struct {
	n   int
	err error
	of  *tokens.Served // of the last request; nil: not kept
}

func (f fakeTokens) Tokens(_ context.Context, _ *openai.Request, served tokens.Served) (tokens.Result, error) {
	if f.of != nil {
		*f.of = served
	}
	ids := make([]uint32, f.n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return tokens.Result{Source: "body", Prompts: []tokens.Prompt{{Tokens: ids}}}, f.err
}

// bench is a router over fakes.
type bench struct {
	fleet   *decisiontest.Fleet
	index   *fakeIndex
	ledger  *load.Ledger
	ring    *decision.Ring
	book    *policy.Book
	decider *decision.Decider
	router  *Router
}

const blockSize = decisiontest.BlockSize

var (
	replica = decisiontest.Replica
	newBook = decisiontest.Book
)

func newBench(t testing.TB, tok tokens.Source, replicas ...*fleet.Replica) *bench {
	t.Helper()
	return newBenchAt(t, nil, tok, replicas...)
}

// newBenchAt is newBench with a clock; nil: the real one.
func newBenchAt(t testing.TB, now func() time.Time, tok tokens.Source, replicas ...*fleet.Replica) *bench {
	t.Helper()
	b := &bench{
		fleet:  decisiontest.NewFleet(replicas...),
		index:  &fakeIndex{ids: map[index.Holder]index.HolderID{}, blocks: map[index.Holder]int{}},
		ledger: load.NewLedger(now), ring: decision.NewRing(64), book: newBook(t, policy.Config{}),
	}
	b.decider = decision.New(b.fleet, b.index, b.ledger, b.book, decision.Options{Now: now, ReadsSalt: tokens.MessagesReadSalt})
	b.router = NewRouter(b.decider, tok, b.ring, NewMetrics(prometheus.NewRegistry()), RouterOptions{TokenBudget: time.Minute}) // tests of the budget set another
	return b
}

func (b *bench) holds(addr string, rank, blocks int) {
	h := index.Holder{Replica: addr, Rank: rank}
	b.index.ID(h)
	b.index.blocks[h] = blocks
}

// charge puts n requests on a replica, each with so much prefill to come, or
// past its first token where there is none.
func (b *bench) charge(addr string, n int, prefill time.Duration) {
	b.ledger.Lock()
	defer b.ledger.Unlock()
	for range n {
		now := time.Now().UnixNano()
		c := new(load.Charge)
		c.Put(b.ledger.Of(index.Holder{Replica: addr}), load.Terms{Sent: now, Due: now + int64(time.Hour), Expected: int64(prefill)})
		if prefill == 0 {
			c.FirstToken()
		}
	}
}
