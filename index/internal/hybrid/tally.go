package hybrid

import "sync"

// guessList is the open assumptions about a member, the one in use first.
type guessList struct{ all []Assumed }

// Guess is a member's hit of a prompt by each open assumption. Learn compares it with the
// replica's report.
type Guess struct {
	list *guessList
	Hits []int32
}

// Guess fills g; g is empty if no assumption is open, or if keys of the prompt are missing:
// it would seem to hit too little. Guess takes no lock.
func (l *Lookup) Guess(g *Guess, m *Member, q *Query, index Index) {
	g.list, g.Hits = nil, g.Hits[:0]
	p, list := m.plan.Load(), m.guessed.Load()
	if p == nil || list == nil || len(list.all) < 2 {
		return
	}
	p = m.current()
	b := l.aimAt(m, p, q, index)
	defer l.end()
	if c := p.keying; c.Unit > 0 && len(b.keys) < (q.Tokens-1-c.Ahead)/c.Unit {
		return
	}
	g.list = list
	g.Hits = Predict(g.Hits, p.layout, list.all, q.Tokens, b)
}

// Learn compares a Guess with the tokens that the replica has taken from its cache for the
// same prompts.
func (m *Member) Learn(g *Guess, reported int) {
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

// Open reports whether counts may still show something about the member.
func (m *Member) Open() bool { return !m.settled.Load() }

// tally adds up the predictions of the assumptions for the prompts that are sent to a
// member, until the replica's counters cover exactly these prompts: then the sum of its
// hits shows which assumption is right. Its lock is held for additions only.
type tally struct {
	mu     sync.Mutex
	list   *guessList
	sums   []int32
	tokens int64 // of the prompts
	n      int

	begun         bool
	queries, hits float64 // the counters when the sums were empty
}

// maxTally bounds the prompts that are added up: later, the counters will hardly ever cover
// exactly these prompts.
const maxTally = 256

// Expect records that a prompt was sent to the member, to learn from the counters (Count).
// It allocates nothing and waits for no lock that the writer holds. It holds none while the
// prompt computes its keys: that may wait for a turn, which a caller of Expect can have.
func (l *Lookup) Expect(m *Member, q *Query, index Index) {
	t := &m.tally
	guessed := t.open()
	if guessed {
		l.Guess(&l.guess, m, q, index)
	}
	t.add(q.Tokens, guessed, &l.guess)
	l.guess.list = nil
}

// open reports whether prompts are added up.
func (t *tally) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun && t.n < maxTally
}

// add adds a prompt, and its guess if there is one.
func (t *tally) add(tokens int, guessed bool, g *Guess) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens += int64(tokens)
	t.n++
	if !t.begun || t.n > maxTally {
		return
	}
	if !guessed || t.list != g.list {
		if t.n > 1 || !guessed {
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
	case t.begun && t.n <= maxTally && moved >= 0 && moved < float64(t.tokens):
		return g, 0, false // the replica has not looked up some of the prompts yet
	}
	t.begun, t.queries, t.hits = true, queries, hits
	t.n, t.tokens, t.list = 0, 0, nil
	return g, reported, ok
}
