package simulator

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Qwen32B is Qwen3 32B in bf16 on two H100 (TP 2): a prefill of 8,192 tokens takes the 0.40 s
// that llm-d measured, and the KV cache holds the 307,328 tokens that it reports; the rest is
// data sheets, as for H100.
func Qwen32B() Hardware {
	return Hardware{
		PrefillToken: 44.7e-6, PrefillPair: 1e-9, DecodeToken: 4.9e-8, Weights: 12e-3, Step: 2e-3, Sequence: 15e-6,
		Budget: 8192, Sequences: 256, Capacity: 307_328,
	}
}

// talkBlock is the tokens of a block of the workloads of talks.
const talkBlock = 64

// talks builds a trace of talks: prompts that begin with a shared head and go on with what was
// said before.
type talks struct {
	*Builder
	rng   *rand.Rand
	fresh int64
	count int
	all   []said
}

// said is one request of a talk, with the talk's blocks up to the end of its answer.
type said struct {
	session int
	think   float64
	answer  []int64
}

func newTalks(name string, seed uint64) *talks {
	return &talks{Builder: NewBuilder(name), rng: rand.New(rand.NewPCG(seed, 88))}
}

// grow adds new blocks up to so many tokens.
func (t *talks) grow(blocks []int64, tokens int) []int64 {
	for len(blocks) < tokens/talkBlock {
		t.fresh++
		blocks = append(blocks, t.fresh)
	}
	return blocks
}

// talk is one in progress.
type talk struct {
	session, tokens int
	blocks          []int64
}

// begin begins a talk with a head of so many tokens.
func (t *talks) begin(head []int64, tokens int) *talk {
	t.count++
	return &talk{session: t.count, tokens: tokens, blocks: slices.Clone(head)}
}

// say adds a request: input tokens behind what was said, and its answer.
func (t *talks) say(k *talk, at, think float64, input, output int) {
	k.tokens += input
	k.blocks = t.grow(k.blocks, k.tokens)
	n := len(k.blocks)
	t.Add(at, k.tokens, output, k.blocks)
	k.tokens += output
	k.blocks = t.grow(k.blocks, k.tokens)
	t.all = append(t.all, said{k.session, think, k.blocks[n:]})
}

// trace returns the trace. Answers' blocks that no prompt has are left unnamed.
func (t *talks) trace() *Trace {
	tr := t.Trace()
	for i, s := range t.all {
		r := &tr.Requests[i]
		r.Session, r.Think = s.session, s.think
		for _, b := range s.answer {
			id, ok := t.ids[b]
			if !ok {
				break
			}
			r.Answer = append(r.Answer, id)
		}
	}
	tr.Block, tr.Duration = talkBlock, max(tr.Duration, 1)
	return tr
}

// between draws from a normal distribution that is cut.
func (t *talks) between(least, mean, most, deviation float64) int {
	return int(min(most, max(least, mean+deviation*t.rng.NormFloat64())))
}

// log draws a logarithm evenly.
func (t *talks) log(least, most float64) int {
	return int(least * math.Pow(most/least, t.rng.Float64()))
}

// Cell is one load of a workload.
type Cell struct {
	Workload, Load string
	Replicas       int
	Hardware       Hardware
	Rate           float64 // requests per second; 0 = by sessions
	Sessions       int     // open at a time
	Light          *Light  // in place of the others
	make           func(seed uint64) *Trace
}

// Trace returns the cell's requests, by seed.
func (c *Cell) Trace(seed uint64) *Trace {
	if c.Light != nil {
		return c.Light.Trace(seed)
	}
	return c.make(seed)
}

// Run runs a policy on the cell's trace of a seed.
func (c *Cell) Run(t *Trace, seed uint64, policy func(s *Sim) Policy) Result {
	cfg, rate := Config{Replicas: c.Replicas, Hardware: c.Hardware, Seed: seed, Sessions: c.Sessions, Warm: 0.2}, c.Rate
	if c.Light != nil {
		cfg, rate = c.Light.Config(seed), 1
	}
	cfg.Policy = policy
	return New(cfg, t, max(rate, 1e-9)).Run()
}
