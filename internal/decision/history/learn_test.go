package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestTheCapacityIsLearned: from what a replica counts as cached, the capacity comes within
// 10 % of the true one, whether that is a half, once or twice the assumed one, and stays there.
// The replica counts tokens of its own, and the length of its answers is learned, too.
func TestTheCapacityIsLearned(t *testing.T) {
	for _, share := range []float64{0.5, 1, 2} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(share, " of the assumed one, seed ", seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				want := share * DefaultCapacity * (1 + 0.03*rng.Float64()) // no multiple of the steps
				const perToken, answer = 1.3, 100                          // the replica's tokens for one of the router
				c, m := newCache(), newModel(int(want))
				worst, sum, n := 0.0, 0.0, 0
				for step := range 6_000 {
					// Chats: some are new, others go on after a while.
					family := max(0, step/6-int(rng.ExpFloat64()*150))
					p := prompt(family, family, 60, 20+rng.IntN(25))
					tokens := p.Marks.End(len(p.Keys))
					hit := p.Marks.End(m.match(p))
					h := c.Use(p, 0, start)
					m.use(p)
					m.end(p)
					c.End(p, h, true, start)
					if rng.IntN(4) == 0 { // the share of the answers that are read
						c.Answered(&Used{Hold: h, Marks: p.Marks, Tokens: tokens}, Counted{int(perToken * float64(tokens)), int(perToken * float64(hit)), int(perToken * answer)})
					}
					if step >= 3000 {
						got, learned := c.Capacity()
						off := float64(got)/want - 1
						worst, sum, n = max(worst, math.Abs(off)), sum+off, n+1
						if !learned {
							t.Fatal("it is not learned")
						}
					}
				}
				t.Logf("off by %+.3f on average, by %.3f at most", sum/float64(n), worst)
				if math.Abs(sum/float64(n)) > 0.1 {
					t.Errorf("the capacity is off by %.3f on average", sum/float64(n))
				}
				if a := c.Answer(); a < answer-2 || a > answer+2 {
					t.Errorf("answers have %d tokens, want %d", a, answer)
				}
			})
		}
	}
}

// TestCountsBeyondSense: whatever a replica counts for one answer, its cache goes on matching what
// it had room for, and expects no answers that are longer than the model's context.
func TestCountsBeyondSense(t *testing.T) {
	for _, most := range []int{0, 32_768} {
		for _, capacity := range []int{0, 20_000, 1_500_000} {
			for _, n := range []Counted{{3000, 0, 1 << 40}, {1, 1, 1 << 24}, {1 << 40, 1 << 40, 1 << 40}, {3000, 0, math.MaxInt}} {
				c := newCache()
				if capacity > 0 {
					c.SetCapacity(capacity)
				}
				p := prompt(1, 1, 60, 20)
				tokens := p.Marks.End(len(p.Keys))
				for range 3 {
					h := c.Use(p, c.Answer(), start)
					c.End(p, h, true, start)
					c.Answered(&Used{Hold: h, Marks: p.Marks, Tokens: tokens, Most: most}, n)
				}
				if got := c.Match(p, start); got != tokens || most > 0 && c.Answer() > most {
					t.Errorf("context %d, capacity %d, %+v: %d of %d tokens match; answers have %d", most, capacity, n, got, tokens, c.Answer())
				}
			}
		}
	}
}

// TestCountersOfAnswers: the holder's counters tell how long answers are, from its start on and
// after it begins to count again. Beyond sense, they leave half of the cache to prompts.
func TestCountersOfAnswers(t *testing.T) {
	c := newCache()
	c.SetCapacity(20_000)
	for i, tt := range []struct {
		answers, tokens float64
		want            int
	}{{0, 0, assumedAnswer}, {1000, 40_000, 40}, {1064, 40_000 + 64*100, 100}, {1064, 46_400, 100}, {2, 500, 100}, {66, 500 + 64*30, 30}, {130, 1e18, 10_000}} {
		if c.Read(Page{Answers: tt.answers, Tokens: tt.tokens}); c.Answer() != tt.want {
			t.Errorf("page %d: answers have %d tokens, want %d", i, c.Answer(), tt.want)
		}
	}
	p := prompt(1, 1, 60, 20)
	c.End(p, c.Use(p, c.Answer(), start), true, start)
	if got, want := c.Match(p, start), p.Marks.End(len(p.Keys)); got != want {
		t.Errorf("%d of %d tokens match", got, want)
	}
}

// TestKeeps: a cache knows of what it has evicted, as soon as what comes in its place is on its
// way, and says nothing of prompts that it has not seen, or has whole.
func TestKeeps(t *testing.T) {
	c := newCache()
	c.SetCapacity(20_000)
	p, other := prompt(1, 1, 4, 12), prompt(1, 2, 4, 12)
	c.used(p, 0, start)
	for _, q := range []Prompt{p, other} {
		if n, known := c.Keeps(q); known {
			t.Errorf("%d tokens are kept, and others were evicted", n)
		}
	}
	h := c.Use(prompt(3, 3, 0, 1), 20_000-p.Marks.End(1)-p.Marks.End(9), start)
	if n, known := c.Keeps(p); !known || n < p.Marks.End(4) || n > p.Marks.End(9) {
		t.Errorf("%d tokens are kept, %v", n, known)
	}
	if n, known := c.Keeps(other); known {
		t.Errorf("another prompt: %d tokens are kept", n)
	}
	c.End(prompt(3, 3, 0, 1), h, true, start)
	c.used(p, 0, start.Add(1))
	if n, known := c.Keeps(p); known {
		t.Errorf("used again: %d tokens are kept", n)
	}
}

// TestEvictedPromptsAreCompared: what is evicted counts as absent, is kept to compare as far as
// it would fit another time, and comes back whole when it is used.
func TestEvictedPromptsAreCompared(t *testing.T) {
	c, named := newCache(), newCache()
	c.capacity = 20_000
	named.SetCapacity(20_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		p := prompt(rng.IntN(6), 10+rng.IntN(12), 1+rng.IntN(12), 1+rng.IntN(40))
		if got, want := c.Match(p, start), named.Match(p, start); got != want {
			t.Fatalf("%d tokens match, %d where nothing is learned", got, want)
		}
		h := c.Use(p, 10, start)
		named.Use(p, 10, start)
		if h.kept > h.had || int(c.evicted.Load()) > c.capacity {
			t.Fatalf("%+v, %d tokens are evicted", h, int(c.evicted.Load()))
		}
		c.End(p, h, true, start)
		named.End(p, Hold{rest: 10}, true, start)
	}
	evicted := 0
	for _, n := range c.nodes {
		if n.evicted {
			evicted += n.tokens()
		}
	}
	if evicted == 0 || evicted != int(c.evicted.Load()) {
		t.Errorf("%d tokens are evicted, counted are %d", evicted, int(c.evicted.Load()))
	}
	c.SetCapacity(10_000)
	if int(c.evicted.Load()) == 0 || int(c.evicted.Load()) > 10_000 {
		t.Errorf("%d evicted tokens are kept of a cache for 10000", int(c.evicted.Load()))
	}
}
