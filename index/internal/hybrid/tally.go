package hybrid

import (
	"slices"
	"sync"
)

// guessList is the open assumptions about a member, the one in use first.
type guessList struct{ all []Assumed }

// Guess is a member's hit of a prompt by each open assumption. Learn and Answered compare it
// with the replica's report.
type Guess struct {
	list  *guessList
	round *round // that the prompt was added to; nil: none
	Hits  []int32
	below belowGuess
}

// Reset empties g.
func (g *Guess) Reset() { *g = Guess{Hits: g.Hits[:0]} }

// Set makes g a copy of another Guess.
func (g *Guess) Set(o *Guess) {
	g.list, g.round, g.below, g.Hits = o.list, o.round, o.below, append(g.Hits[:0], o.Hits...)
}

// Differ reports whether the assumptions, also about a clear of CPU memory, predict different
// hits: then the hit that the replica reports shows which of them are wrong.
func (g *Guess) Differ() bool {
	return g.below.kept != g.below.sure || slices.ContainsFunc(g.Hits, func(hit int32) bool { return hit != g.Hits[0] })
}

// Below reports whether g also has what is loaded from CPU memory, by a rule that is known.
func (g *Guess) Below() bool { return g.below.guessed }

// Guess fills g; g is empty if no assumption is open, or if keys of the prompt are missing:
// it would seem to hit too little. Guess takes no lock.
func (l *Lookup) Guess(g *Guess, m *Member, q *Query, index Index) {
	g.Reset()
	p, list, tier := m.plan.Load(), m.guessed.Load(), m.tiered.Load()
	open := list != nil && len(list.all) > 1
	if p == nil || !open && tier == nil {
		return
	}
	p = m.current()
	b := l.aimAt(m, p, q, index)
	defer l.end()
	if c := p.keying; c.Unit > 0 && len(b.keys) < (q.Tokens-1-c.Ahead)/c.Unit {
		return
	}
	if tier != nil {
		g.below = l.guessBelow(tier, q.Tokens)
	}
	if !open {
		return
	}
	g.list = list
	g.Hits = Predict(g.Hits, p.layout, list.all, q.Tokens, b)
}

// Learn compares a Guess with the tokens that the replica has taken from its cache for the
// same prompts.
func (m *Member) Learn(g *Guess, reported int) {
	if m.tier == nil || m.learnTier(&g.below, reported, true) {
		m.learn(g, reported)
	}
}

// learn is Learn for the assumptions about the GPU.
func (m *Member) learn(g *Guess, reported int) {
	if g.list == nil || m.guessed.Load() != g.list || m.guesses == nil {
		return
	}
	was := m.guesses.Assumed()
	if m.guesses.Learn(g.Hits, reported) || was != m.guesses.Assumed() {
		m.join(m.guesses.Layout())
	} else if p := m.plan.Load(); p != nil {
		m.updateTrust(p)
	}
}

// Answered is Learn for one prompt that was given to Expect: the replica has reported its hit
// in the answer. A hit that no assumption predicts counts only if the replica was alone with
// the prompt; otherwise another prompt may have stored or evicted blocks before the lookup.
// A prompt that counters have shown already teaches nothing again.
func (m *Member) Answered(g *Guess, reported int, alone bool) {
	if m.tier != nil && !m.learnTier(&g.below, reported, alone) {
		return
	}
	if g.list == nil || m.guessed.Load() != g.list {
		return
	}
	if !alone && !slices.Contains(g.Hits, int32(reported)) || !m.tally.takeOut(g.round) {
		return
	}
	m.learn(g, reported)
}

// Open reports whether counts may still show something about the member.
func (m *Member) Open() bool { return !m.settled.Load() }

// tally adds up the predictions of the assumptions for the prompts that are sent to a
// member, until the replica's counters cover exactly these prompts: then the sum of its
// hits shows which assumption is right. Its lock is held for additions only.
type tally struct {
	mu     sync.Mutex
	round  *round // of the sums
	list   *guessList
	sums   []int32
	tokens int64 // of the prompts
	n      int

	begun         bool
	queries, hits float64 // the counters when the sums were empty
}

// round is the prompts that are added up between two counts. tally.mu guards it.
type round struct{ counted bool } // the counters have covered it

// maxTally bounds the prompts that are added up: later, the counters will hardly ever cover
// exactly these prompts.
const maxTally = 256

// Expect records that a prompt was sent to the member, and fills g with its hits, to learn
// from the counters (Count) or from the answer (Answered). It allocates nothing and waits for
// no lock that the writer holds. It holds none while the prompt computes its keys: that may
// wait for a turn, which a caller of Expect can have.
func (l *Lookup) Expect(g *Guess, m *Member, q *Query, index Index) {
	l.Guess(g, m, q, index)
	m.tally.add(q.Tokens, g)
}

// Unexpected records that a prompt was sent to the member whose hit cannot be predicted: the
// counters show nothing until they are read again.
func (m *Member) Unexpected() { m.tally.add(0, &Guess{}) }

// add adds a prompt with its guess; an empty one ends the round.
func (t *tally) add(tokens int, g *Guess) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.round = t.round
	t.tokens += int64(tokens)
	t.n++
	if !t.begun || t.n > maxTally {
		return
	}
	if g.list == nil || t.list != g.list {
		if t.n > 1 || g.list == nil {
			t.n = maxTally + 1 // half of the sums are of other assumptions, or a guess is missing
			return
		}
		t.list = g.list
		t.sums = t.sums[:0]
	}
	for i, hit := range g.Hits {
		if i == len(t.sums) {
			t.sums = append(t.sums, 0)
		}
		t.sums[i] += hit
	}
}

// takeOut takes a prompt out of its round, whose sums then teach nothing. It returns false if
// they have taught already.
func (t *tally) takeOut(of *round) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case of == nil:
	case of.counted:
		return false
	case of == t.round:
		t.n = maxTally + 1
	}
	return true
}

// Count takes the replica's counters of prompt tokens: looked up in its cache, and found
// there. It returns the Guess that they answer, with the reported hits, or false if they
// answer none.
func (m *Member) Count(queries, hits float64) (g Guess, reported int, ok bool) {
	return m.tally.take(queries, hits)
}

// take returns the sums if the counters cover exactly the prompts that were added up, and
// restarts the sums if the counters never will.
func (t *tally) take(queries, hits float64) (g Guess, reported int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	moved := queries - t.queries
	switch {
	case t.begun && t.n == 0 && moved == 0:
		return g, 0, false
	case t.begun && t.n > 0 && t.n <= maxTally && moved == float64(t.tokens) && hits >= t.hits:
		g = Guess{list: t.list, Hits: append([]int32(nil), t.sums...)}
		reported, ok = int(hits-t.hits), t.list != nil
		if t.round != nil {
			t.round.counted = ok
		}
	case t.begun && t.n <= maxTally && moved >= 0 && moved < float64(t.tokens):
		return g, 0, false // the replica has not looked up some of the prompts yet
	}
	t.begun, t.queries, t.hits, t.round = true, queries, hits, new(round)
	t.n, t.tokens, t.list = 0, 0, nil
	return g, reported, ok
}
