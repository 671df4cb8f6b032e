package simulator

import "slices"

// SplitPolicy is a Policy that may have prompts computed by another replica than the one
// that answers.
type SplitPolicy interface {
	// Prefill returns the replica that computes the prompt of r, which r.Replica answers;
	// -1 = r.Replica.
	Prefill(now float64, r *Request) int
	// Prefilled tells that it has.
	Prefilled(now float64, r *Request)
}

// move is a KV cache on its way to the replica that answers.
type move struct {
	at float64
	r  *Request
}

// split sends the prompt of r to another replica, if the policy wants that.
func (s *Sim) split(r *Request) bool {
	p, ok := s.policy.(SplitPolicy)
	if !ok {
		return false
	}
	if r.Prefill = p.Prefill(s.now, r); r.Prefill < 0 || r.Prefill == r.Replica {
		r.Prefill = -1
		return false
	}
	leg := *r
	leg.of, leg.Replica, leg.Output, leg.Answer = r, r.Prefill, 1, nil
	r.moved, r.cost, r.uncached = true, 0, 0
	s.router.sent(&leg)
	s.enqueue(&leg)
	return true
}

// move begins to move the KV cache of a prompt. Moves do not slow each other down, and their
// blocks on the first replica may be evicted at once.
func (s *Sim) move(leg *Request) {
	s.router.done(leg)
	r := leg.of
	r.Hit = leg.Hit
	s.policy.(SplitPolicy).Prefilled(s.now, r)
	m := move{s.now + s.c.Handover, r}
	if d, ok := s.engines[r.Replica].Scheduler.(*dense); ok && s.c.Bandwidth > 0 {
		m.at += float64(r.Input-hit(d.match(r.Blocks), r.Input, s.block)) / s.c.Bandwidth
	}
	i, _ := slices.BinarySearchFunc(s.moves, m.at, func(m move, at float64) int {
		if m.at <= at {
			return -1
		}
		return 1
	})
	s.moves = slices.Insert(s.moves, i, m)
}

// arrived gives the request of the first move to its replica.
func (s *Sim) arrived() {
	r := s.moves[0].r
	s.moves = slices.Delete(s.moves, 0, 1)
	s.enqueue(r)
}

// Rules decide whether a prompt is computed by another replica, by the numbers of its
// tokens and of those that are cached on the replica that answers, and by the tokens queued
// on the other one.
var Rules = map[string]func(input, held, queued int) bool{
	"never":  func(int, int, int) bool { return false },
	"always": func(int, int, int) bool { return true },
	"512":    func(input, held, _ int) bool { return input-held >= 512 }, // llm-d's threshold
	"dynamo": func(input, held, queued int) bool { // Dynamo's conditional disaggregation
		left := input - held
		return !(left < 2048 && float64(left) < 0.7*float64(input)) && queued <= 8192
	},
}

// Ruled returns a policy that splits requests by one of Rules. The first prefill replicas
// only compute prompts for others; with 0 all do both. Replicas are chosen by the score of
// Reference.
func Ruled(rule string, prefill int) func(s *Sim) Policy {
	return func(s *Sim) Policy { return &ruled{rival{s, nil, nil}, Rules[rule], prefill, -1} }
}

type ruled struct {
	rival
	rule    func(input, held, queued int) bool
	prefill int
	next    int // that computes the prompt of the request at hand
}

func (p *ruled) Route(now float64, r *Request) int {
	s, st := p.s, p.s.router
	matched := slices.Clone(st.matches(r.Blocks, true, now))
	awaiting := 0
	for _, n := range st.awaiting {
		awaiting += n
	}
	l := 3 + 0.7*float64(awaiting)/float64(s.c.Replicas)
	best := func(from, to, not int) int {
		return from + s.leastOf(to-from, func(i int) float64 {
			if i += from; i == not {
				return 1e9
			}
			h := hit(matched[i], r.Input, s.block)
			return st.pending[i] + (1+l)*s.c.Hardware.Prefill(r.Input-h, h) + 20*s.c.Hardware.DecodeToken*st.live[i]
		})
	}
	d := best(p.prefill, s.c.Replicas, -1)
	p.next = -1
	at, helpers := d, p.prefill
	if helpers == 0 {
		helpers = s.c.Replicas
	}
	if e := best(0, helpers, d); e != d && p.rule(r.Input, hit(matched[d], r.Input, s.block), st.uncached[e]) {
		p.next, at = e, e
	}
	h := hit(matched[at], r.Input, s.block)
	r.uncached, r.cost = r.Input-h, s.c.Hardware.Prefill(r.Input-h, h)
	st.expect(at, r.Blocks, now+600)
	st.expect(d, r.Blocks, now+600)
	return d
}

// Prefill implements SplitPolicy.
func (p *ruled) Prefill(float64, *Request) int { return p.next }

// Prefilled implements SplitPolicy.
func (p *ruled) Prefilled(now float64, r *Request) { p.settle(now, r.Prefill, r) }

func (p *ruled) First(now float64, r *Request) { p.settle(now, r.Replica, r) }

// settle ends the expectation that a replica will hold the prompt: its events tell from now
// on.
func (p *ruled) settle(now float64, replica int, r *Request) {
	until := now + 0.05 + p.s.c.EventDelay
	for _, b := range r.Blocks {
		if coming := p.s.router.coming[replica]; coming[b] > until {
			coming[b] = until
		}
	}
}
