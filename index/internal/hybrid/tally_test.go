package hybrid

import (
	"testing"

	"warmroute/prefixhash"
)

// counter is a member of full attention alone that holds five blocks, and the counts that
// are sent to it.
type counter struct {
	t *testing.T
	m *Member
	n *nodesByHand
	l Lookup
	g Guess
}

func newCounter(t *testing.T) *counter {
	m, _ := newMember(newTestModel(), 1, nil)
	apply(m, Keying{}, fullEvent.in(0))
	return &counter{t: t, m: m, n: &nodesByHand{depths: map[Home]map[int32]depth{{0, 16, 0}: {1: {held: 5}}}}}
}

// expect sends prompts of 100 tokens, which hit 80 or, if a block is dropped, 64.
func (c *counter) expect(prompts int) {
	for range prompts {
		c.l.Expect(&c.g, c.m, &Query{Prompt: length(100), Tokens: 100, Asked: Home{Block: 16}}, c.n)
	}
}

func (c *counter) count(what string, queries, hits float64, want []int32, reported int) {
	c.t.Helper()
	g, got, ok := c.m.Count(queries, hits)
	if ok != (want != nil) || got != reported {
		c.t.Errorf("%s: reported %d, %v", what, got, ok)
	}
	if ok {
		equalAll(c.t, what, g.Hits, want)
	}
}

// TestCountsThatCoverPrompts: the sums are compared when the counters have moved by exactly
// the prompts that were sent, and begin again when they never will.
func TestCountsThatCoverPrompts(t *testing.T) {
	c := newCounter(t)
	c.expect(3) // before the first count: not added up
	c.count("the first", 1000, 10, nil, 0)
	c.count("nothing has happened", 1000, 10, nil, 0)
	c.expect(2)
	c.count("one is in the queue", 1100, 74, nil, 0)
	c.count("none has begun", 1000, 10, nil, 0)
	c.count("both are done", 1200, 138, []int32{160, 128}, 128)
	c.expect(1)
	c.count("another's prompt is among them", 1301, 138, nil, 0)
	c.expect(1)
	c.count("from there on", 1401, 218, []int32{80, 64}, 80)
	c.expect(1)
	c.count("the replica was started again", 100, 0, nil, 0)
	c.expect(1)
	c.count("since then", 200, 64, []int32{80, 64}, 64)
	c.expect(1)
	c.count("its hits were set back", 300, 60, nil, 0)
	c.count("somebody else's", 400, 60, nil, 0)
	c.expect(maxTally)
	c.count("as many as are added up", 400+100*maxTally, 60, []int32{80 * maxTally, 64 * maxTally}, 0)
	c.expect(maxTally + 1)
	c.count("more than are added up", 400+100*(2*maxTally+1), 60, nil, 0)
	c.expect(1)
	c.count("a new beginning", 500+100*(2*maxTally+1), 60, []int32{80, 64}, 0)
}

// TestSumsAreOfOneList: prompts that were predicted by other assumptions are not added up.
func TestSumsAreOfOneList(t *testing.T) {
	c := newCounter(t)
	c.count("the first", 0, 0, nil, 0)
	c.expect(1)
	c.m.Configure(nil) // the assumptions are listed anew
	c.expect(1)
	c.count("half of them by others", 200, 128, nil, 0)
	c.expect(1)
	c.count("after that", 300, 128, []int32{80, 64}, 0)
	c.m.Configure(known)
	c.expect(1)
	c.count("no assumption is open", 400, 128, nil, 0)
	equal(t, "open", c.m.Open(), false)
	equal(t, "of another", newCounter(t).m.Open(), true)
}

// hashed is a prompt whose keys are computed when they are asked for.
type hashed struct {
	length
	compute func(keys []prefixhash.Key) []prefixhash.Key
}

func (p hashed) AppendChain(dst []prefixhash.Key, c Keying) []prefixhash.Key {
	return p.compute(p.length.AppendChain(dst, c))
}

// TestKeysAreComputedWithoutTheLock: to compute keys may wait for a turn, which a request that
// waits for the lock can have.
func TestKeysAreComputedWithoutTheLock(t *testing.T) {
	c, asked := newCounter(t), 0
	c.count("the first", 0, 0, nil, 0)
	p := hashed{100, func(keys []prefixhash.Key) []prefixhash.Key {
		asked++
		if !c.m.tally.mu.TryLock() {
			t.Error("the lock is held")
			return keys
		}
		c.m.tally.mu.Unlock()
		return keys
	}}
	c.l.Expect(&c.g, c.m, &Query{Prompt: p, Tokens: 100, Asked: Home{Block: 16}}, c.n)
	if c.count("one", 100, 64, []int32{80, 64}, 64); asked == 0 {
		t.Error("no key was computed")
	}
}

// TestCountsDuringAnExpectation: counters that come while a prompt's keys are computed do not
// cover it.
func TestCountsDuringAnExpectation(t *testing.T) {
	c := newCounter(t)
	c.count("the first", 0, 0, nil, 0)
	p := hashed{100, func(keys []prefixhash.Key) []prefixhash.Key {
		c.expect(1)
		c.count("of the other", 100, 80, []int32{80, 64}, 80)
		return keys
	}}
	l := Lookup{}
	l.Expect(new(Guess), c.m, &Query{Prompt: p, Tokens: 100, Asked: Home{Block: 16}}, c.n)
	c.count("of the prompt", 200, 144, []int32{80, 64}, 64)
}

// TestStoppedPromptsTeachNothing: a prompt without all of its keys would be expected to hit
// too little.
func TestStoppedPromptsTeachNothing(t *testing.T) {
	c := newCounter(t)
	c.count("the first", 0, 0, nil, 0)
	stopped := hashed{100, func(keys []prefixhash.Key) []prefixhash.Key { return keys[:2] }}
	queries := 0.0
	for _, before := range []int{0, 1} {
		c.expect(before)
		c.l.Expect(&c.g, c.m, &Query{Prompt: stopped, Tokens: 100, Asked: Home{Block: 16}}, c.n)
		c.expect(1)
		queries += 100 * float64(before+2)
		c.count("one was stopped", queries, 64, nil, 0)
		c.expect(1)
		queries += 100
		c.count("after that", queries, 144, []int32{80, 64}, 80)
		c.count("a new beginning", queries-100*float64(before+3), 64, nil, 0)
		queries -= 100 * float64(before+3)
	}
	var g Guess
	if c.l.Guess(&g, c.m, &Query{Prompt: stopped, Tokens: 100, Asked: Home{Block: 16}}, c.n); len(g.Hits) > 0 {
		t.Errorf("a stopped prompt hits %v", g.Hits)
	}
}

// TestPromptsTeachOnce: a prompt whose hit the counters have shown teaches nothing by its
// answer, and the counters nothing of a round with a prompt whose answer has taught.
func TestPromptsTeachOnce(t *testing.T) {
	c, queries, hits := newCounter(t), 0.0, 0.0
	read := func() {
		if g, reported, ok := c.m.Count(queries, hits); ok {
			c.m.Learn(&g, reported)
		}
	}
	seen := func(what string, want int) {
		t.Helper()
		if n, _, _ := c.m.guesses.Seen(); n != want {
			t.Errorf("%s: %d observations, want %d", what, n, want)
		}
	}
	served := func() { c.expect(1); queries, hits = queries+100, hits+80 }
	read()
	served()
	read()
	seen("counted", 1)
	c.m.Answered(&c.g, 80, true)
	seen("answered after it was counted", 1)
	served()
	c.m.Answered(&c.g, 80, true)
	seen("answered", 2)
	read()
	seen("counted after it was answered", 2)
	served()
	read()
	seen("the next is counted", 3)
	served()
	late := c.g
	queries++ // a stranger's
	read()
	c.m.Answered(&late, 7, false)
	seen("a hit that nobody predicts, among others", 3)
	c.m.Answered(&late, 80, false)
	seen("not counted, so it teaches later", 4)
}
