package index

import (
	"sync"

	"warmroute/prefixhash"
)

// groupTally adds up what the assumptions about a cache predict for the prompts
// that are sent there, until what it reports covers just these: then the sum of
// its hits shows which assumption is right. It has a lock of its own, which is
// held for additions only.
type groupTally struct {
	mu     sync.Mutex
	guess  Guess // of one prompt
	list   *guessList
	sums   []int32
	tokens int64 // of the prompts
	n      int

	begun         bool
	queries, hits float64 // reported when the sums were empty
}

// maxTally bounds the prompts that are waited for: behind so many the reports
// will not come to cover just them any more.
const maxTally = 256

// Expect records that a prompt was sent to a holder, to learn from what the holder
// reports (Report hits by Hits) what its events do not contain. keys are the prompt's
// as for FindPrompt. It allocates nothing and waits for no lock that ingest holds.
func (x *Index) Expect(id HolderID, s Scope, keys []prefixhash.Key, p Prompt) {
	m := x.memberOf(id, modelKey{s.Tenant, s.Model})
	if m == nil || m.settled.Load() {
		return
	}
	t := &m.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens += int64(p.Tokens())
	t.n++
	if !t.begun || t.n > maxTally {
		return
	}
	x.Guess(&t.guess, id, s, keys, p)
	if t.list != t.guess.list {
		if t.n > 1 {
			t.n = maxTally + 1 // half of it by other assumptions
			return
		}
		t.list = t.guess.list
		t.sums = t.sums[:0]
	}
	for i, hit := range t.guess.Hits {
		if i == len(t.sums) {
			t.sums = append(t.sums, 0)
		}
		t.sums[i] += hit
	}
}

// Hits takes a holder's counters of prompt tokens that it has looked up in its
// cache and found there, as it reported them last.
func (x *Index) Hits(self Holder, queries, hits float64) {
	h := x.known(self)
	if h == nil {
		return
	}
	all := h.seenMembers.Load()
	if all == nil || len(*all) != 1 { // the counters do not distinguish models
		return
	}
	m := (*all)[0]
	if m.settled.Load() {
		return
	}
	g, reported, ok := m.tally.take(queries, hits)
	if ok {
		x.Served(self, Scope{Tenant: m.key.tenant, Model: m.key.model}, &g, reported)
	}
}

// take returns the sums when the counters cover exactly what was added up, and
// restarts the sums when the counters never will.
func (t *groupTally) take(queries, hits float64) (g Guess, reported int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	moved := queries - t.queries
	switch {
	case t.begun && t.n == 0 && moved == 0:
		return g, 0, false
	case t.begun && t.n > 0 && t.n <= maxTally && moved == float64(t.tokens) && hits >= t.hits:
		g = Guess{list: t.list, Hits: append([]int32(nil), t.sums...)}
		reported, ok = int(hits-t.hits), t.list != nil
	case t.begun && t.n <= maxTally && moved >= 0 && moved < float64(t.tokens):
		return g, 0, false // some have not begun yet
	}
	t.begun, t.queries, t.hits = true, queries, hits
	t.n, t.tokens, t.list = 0, 0, nil
	return g, reported, ok
}
