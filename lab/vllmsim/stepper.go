package vllmsim

import (
	"encoding/binary"
	"fmt"
)

// Stepper is a replica's engine, one rank, on its caller's clock: scheduler and KV
// cache alone, for simulations that have a time of their own. Prompts have no
// tokens there, only numbers that name their blocks. Not safe for concurrent use.
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

// Submit queues a prompt and the answer it gets, in tokens. blocks names the
// prompt's full blocks, each with all before it.
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

// named is the digest that stands for a block that the caller named.
func named(b uint64) (d digest) {
	d.n = 8
	binary.BigEndian.PutUint64(d.b[:8], b)
	return d
}

// Step is what an engine computes at once.
type Step struct {
	Prompt  int     // tokens of prompts
	Answers int     // tokens of answers
	Pairs   float64 // (query, key) pairs of the prompts' attention, where all tokens before are seen
	Context float64 // tokens before those of the answers
	Running int     // sequences
}

// Begin forms the next step, false where there is nothing to do.
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

// Change is what one event contains about a group's KV cache. Blocks are those that were
// submitted by name; what the tokens of answers fill is left out.
type Change struct {
	Group   int
	Kind    Kind
	Window  int
	Removed bool
	Parent  uint64 // of Blocks[0], stored; 0 and not HasParent: it is a prompt's first
	Blocks  []uint64
	Tokens  int // that the event covers: more than those of Blocks where some are not kept

	HasParent bool
}

// Result is what a step came to.
type Result struct {
	Changes []Change // of the KV cache, in order
	First   []Answer // requests whose first token came
	Done    []Answer // requests whose last token came
}

// Answer is a request by its number, and how many of its tokens were cached.
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

// Load is how many requests wait and run, and the share of the KV cache in use.
func (s *Stepper) Load() (waiting, running int, usage float64) {
	e := s.e
	return len(e.waiting), len(e.running), e.pool.usage()
}
