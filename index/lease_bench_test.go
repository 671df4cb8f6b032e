package index

import (
	"testing"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
)

// requests drives speculation as requests do: of prompts with 400 blocks that nobody has,
// 16 are under way at a time, on 8 holders; the oldest is withdrawn for each new one. A
// millisecond passes with each, and a lease lasts three seconds.
type requests struct {
	x      *Index
	at     *clock
	scope  Scope
	ids    []HolderID
	keys   []prefixhash.Key
	next   uint64
	flight [16]uint64
}

func newRequests(t testing.TB) *requests {
	c := &requests{at: &clock{time.Unix(1_700_000_000, 0)}, scope: Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}, keys: make([]prefixhash.Key, 400)}
	x := New(Options{Now: c.at.now})
	t.Cleanup(x.Close)
	c.x = x
	for rank := range 8 {
		c.ids = append(c.ids, x.ID(Holder{Replica: "r", Rank: rank}))
	}
	return c
}

// prompt is the keys of the nth prompt.
func (c *requests) prompt(n uint64) []prefixhash.Key {
	for i := range c.keys {
		c.keys[i] = prefixhash.Key((n<<10 + uint64(i) + 1) * hashtable.Golden)
	}
	return c.keys
}

func (c *requests) id(n uint64) HolderID { return c.ids[n%8] }

func (c *requests) request() {
	old := &c.flight[c.next%16]
	if *old != 0 {
		c.x.Withdraw(c.scope, c.id(*old), c.prompt(*old))
	}
	c.next++
	*old = c.next
	c.at.t = c.at.t.Add(time.Millisecond)
	c.x.Speculate(c.scope, c.id(c.next), c.prompt(c.next), c.at.t.Add(3*time.Second))
}

func BenchmarkSpeculateAndWithdraw400(b *testing.B) {
	c := newRequests(b)
	for range 5000 {
		c.request()
	}
	b.ReportAllocs()
	for b.Loop() {
		c.request()
	}
}
