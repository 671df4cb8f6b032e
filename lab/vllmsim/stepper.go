package vllmsim

import (
	"encoding/binary"
	"fmt"
)

// Stepper is one rank of a replica's engine on its caller's clock: the scheduler and the
// KV cache alone, for simulations with a time of their own. Its prompts have no tokens,
// only numbers that name their blocks. It is not safe for concurrent use.
type Stepper struct{ e *engine }

// NewStepper returns the engine of a replica that o describes. All its groups have
// blocks of o.BlockSize tokens.
func NewStepper(o Options) (*Stepper, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	for i, g := range o.Groups {
		if g.BlockSize != o.BlockSize {
			return nil, fmt.Errorf("vllmsim: group %d has blocks of %d tokens, all must have %d", i, g.BlockSize, o.BlockSize)
		}
	}
	return &Stepper{newEngine(0, o, func([]event) {})}, nil
}

// Submit queues a prompt with the length of its answer in tokens. blocks names the
// prompt's full blocks; each name stands for its block and all blocks before it.
func (s *Stepper) Submit(id, prompt, answer int, blocks []uint64) error {
	e := s.e
	if full := prompt / e.unit; prompt < 1 || answer < 1 || len(blocks) != full {
		return fmt.Errorf("vllmsim: request %d has %d tokens, %d of answer and %d blocks, it must have a token of each and %d blocks", id, prompt, answer, len(blocks), full)
	}
	if prompt+answer > e.o.MaxModelLen {
		return fmt.Errorf("vllmsim: request %d has %d tokens with its answer, MaxModelLen is %d", id, prompt+answer, e.o.MaxModelLen)
	}
	q := &sequence{prompt: prompt, tokens: make([]uint32, prompt, prompt+answer), maxTokens: answer, index: id, next: func(int) uint32 { return 0 }}
	for _, b := range blocks {
		q.hashes = append(q.hashes, named(b))
	}
	e.submit(q)
	return nil
}

// named returns the digest of a block that the caller named.
func named(b uint64) (d digest) {
	d.n = 8
	binary.BigEndian.PutUint64(d.b[:8], b)
	return d
}

// Step is the work of one step of the engine.
type Step struct {
	Prompt  int     // tokens of prompts
	Answers int     // tokens of answers
	Pairs   float64 // (query, key) pairs of the prompts' attention, if every token attends to all tokens before it
	Context float64 // tokens before the tokens of answers
	Running int     // sequences
}

// Begin forms the next step; false: there is nothing to do.
func (s *Stepper) Begin() (step Step, any bool) {
	e := s.e
	if _, any = e.schedule(); !any {
		return step, false
	}
	step.Running = len(e.running)
	for _, q := range e.running {
		switch n := q.scheduled; {
		case n == 0:
		case q.computed >= q.prompt && n == 1:
			step.Answers++
			step.Context += float64(q.computed)
		default:
			step.Prompt += n
			step.Pairs += float64(n) * (float64(q.computed) + float64(n)/2)
		}
	}
	return step, true
}

// Change is the content of one event about a group's KV cache. Blocks has the blocks of
// prompts by their names, and leaves out the blocks that tokens of answers fill.
type Change struct {
	Group   int
	Kind    Kind
	Window  int
	Removed bool
	Parent  uint64 // of Blocks[0], if stored; 0 and not HasParent: Blocks[0] is a prompt's first
	Blocks  []uint64
	Tokens  int // of the event: more than those of Blocks if the cache does not keep some of them

	HasParent bool
}

// Result is the outcome of a step.
type Result struct {
	Changes []Change // of the KV cache, in order
	First   []Answer // requests whose first token came
	Done    []Answer // requests whose last token came
}

// Answer is the number of a request, and how many of its tokens were cached.
type Answer struct{ ID, Hit int }

// End completes the step.
func (s *Stepper) End() (r Result) {
	e := s.e
	e.mu.Lock()
	out := e.bookLocked()
	events := e.pool.events
	e.pool.events = nil
	e.mu.Unlock()
	for i := range events {
		if c, ok := s.change(&events[i]); ok {
			r.Changes = append(r.Changes, c)
		}
	}
	for _, o := range out {
		a := Answer{o.s.index, o.t.hit}
		if len(o.s.tokens) == o.s.prompt+1 {
			r.First = append(r.First, a)
		}
		if o.t.last {
			r.Done = append(r.Done, a)
		}
	}
	return r
}

func (s *Stepper) change(ev *event) (c Change, ok bool) {
	g := s.e.groups[ev.group]
	c = Change{Group: ev.group, Kind: g.Kind, Window: g.Window, Removed: ev.kind == blockRemoved, Tokens: len(ev.tokens)}
	for i := range ev.hashes {
		if d := &ev.hashes[i]; d.n == 8 {
			c.Blocks = append(c.Blocks, d.low())
		} else {
			c.Tokens -= g.BlockSize
		}
	}
	if ev.parent.n == 8 {
		c.HasParent, c.Parent = true, ev.parent.low()
	}
	return c, len(c.Blocks) > 0
}

// Load returns the number of requests that wait and run, and the share of the KV cache in
// use.
func (s *Stepper) Load() (waiting, running int, usage float64) {
	e := s.e
	return len(e.waiting), len(e.running), e.pool.usage()
}
