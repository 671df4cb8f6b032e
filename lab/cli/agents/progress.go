package agents

import (
	"cmp"
	"math"
	"slices"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// progress is Progress-TTL, AgentInfer's admission of sessions to one replica, by its specification of
// August 2026 and its defaults. A session is active from its admission on; after an answer it stays so
// for a time that its intervals and its prefill make worth waiting, and is paused else. A paused one
// comes back where it and the growth of the active ones fit, the latest used first; one that has waited
// for its deadline comes back at once. It knows sessions by their ids. Left out: privilege, which needs
// the ids of tasks, and shared prefixes; the intervals' own distribution is in place of a log-normal.
type progress struct {
	simulator.Ignored
	o        *Options
	sessions map[int]*program
	checked  float64 // when paused sessions were last looked at
	came     []int   // paused sessions with a request, in order of arrival

	intervals, growth, decodes recent // of the latest hundred
	rounds, segments           recent // that sessions had had at each answer, and when they were paused
	queued                     recent // s that requests have waited
}

// program is a session of Progress-TTL.
type program struct {
	number         int
	context        int // of the request that is open, or with the latest answer
	before         int // with the answer before; 0: there was none
	active         bool
	open           *simulator.Request // nil: between an answer and the next request
	rounds         int                // answered since it became active
	began          float64            // active
	last, deadline float64            // of the latest answer: when it came, and until when the session stays active
	asked, force   float64            // of the request that waits: when it came, and when it comes back at once
}

// The defaults of Progress-TTL, in s, rounds and tokens.
const (
	windowLength      = 100
	ttlLeast, ttlMost = 0.05, 32.0
	mostRounds        = 14
	buffer            = 100
	forceScale        = 3.0
	forceLeast        = 30.0
	forceMost         = 300.0
	stepFixed         = 0.012112
	stepRequest       = 0.0006939
	stepContext       = 2.2516e-7
)

// recent is the latest values of a figure.
type recent []float64

func (r *recent) add(v float64) {
	if *r = append(*r, v); len(*r) > windowLength {
		*r = (*r)[1:]
	}
}

func (r recent) full() bool { return len(r) == windowLength }

func (r recent) mean() (sum float64) {
	for _, v := range r {
		sum += v / float64(len(r))
	}
	return sum
}

func (p *progress) prefill(tokens int) float64 { return float64(tokens) / p.o.Rate }

// ttl returns how long a session with such a context is kept after an answer: until then the prefill
// that a return saves is worth more than the wait of others.
func (p *progress) ttl(context int) float64 {
	if !p.intervals.full() {
		return 0
	}
	saved, best, most := p.prefill(context), 0.0, 0.0
	for i := range 32 {
		d := ttlLeast * math.Pow(ttlMost/ttlLeast, float64(i)/31)
		if d > saved {
			break
		}
		utility := 0.0
		for _, t := range p.intervals {
			if t <= d {
				utility += saved - t
			} else {
				utility -= d
			}
		}
		if utility > most {
			best, most = d, utility
		}
	}
	return best
}

// each yields the active sessions.
func (p *progress) each(yield func(*program) bool) {
	for _, s := range p.sessions {
		if s.active && !yield(s) {
			return
		}
	}
}

// left returns the tokens that the active sessions leave.
func (p *progress) left() int {
	n := p.o.Tokens
	for s := range p.each {
		n -= s.context + buffer
	}
	return n
}

// fits reports whether a request fits beside the active sessions and what they are expected to grow by,
// or gains more decoding than it costs.
func (p *progress) fits(need int) bool {
	free := p.left()
	if free < need+buffer {
		return false
	}
	if !p.growth.full() {
		return true
	}
	target := min(mostRounds, max(1, int(math.Ceil(2*p.rounds.mean()))))
	rounds := target
	recovery, n, batch, context := 0.0, 0, 0, 0
	for s := range p.each {
		rounds += max(0, target-s.rounds)
		if s.rounds < target {
			recovery, n = recovery+p.prefill(s.context), n+1
		}
		if s.open != nil {
			batch, context = batch+1, context+s.context
		}
	}
	growth := max(1, p.growth.mean())
	if float64(free-need-buffer) >= growth*float64(rounds) {
		return true
	}
	through := func(batch, context int) float64 {
		return float64(batch) / (stepFixed + stepRequest*float64(batch) + stepContext*float64(context))
	}
	gain := math.Inf(1)
	if batch > 0 {
		gain = p.decodes.mean() * max(0, through(batch+1, context+need)/through(batch, context)-1)
	}
	before, after := math.Floor(float64(free)/growth), math.Floor(float64(free-need-buffer)/growth)
	loss := 0.0
	if n > 0 && after < before {
		loss = (before - after) / after * recovery / float64(n)
	}
	return gain >= p.prefill(need)+loss
}

// Route implements simulator.Policy.
func (p *progress) Route(now float64, r *simulator.Request) int {
	p.expire(now)
	s := p.sessions[r.Session]
	if s == nil {
		s = &program{number: r.Session}
		p.sessions[r.Session] = s
	} else if s.open == nil && s.last > 0 {
		p.intervals.add(now - s.last)
	}
	if s.open != nil && s.active { // it has come back
		return 0
	}
	s.open, s.context = r, r.Input
	if !s.active && (len(p.came) > 0 || !p.fits(r.Input)) {
		s.asked, s.force = now, now+p.patience()
		p.came = append(p.came, s.number)
		return brain.Held
	}
	p.start(now, s)
	return 0
}

// patience returns how long a request waits before it comes back at once.
func (p *progress) patience() float64 {
	if !p.queued.full() || len(p.segments) == 0 {
		return forceMost
	}
	return min(forceMost, max(forceLeast, forceScale*p.queued.mean()*min(mostRounds, max(1, p.segments.mean()))))
}

func (p *progress) start(now float64, s *program) {
	if !s.active {
		s.active, s.rounds, s.began = true, 0, now
	}
}

func (p *progress) pause(s *program) {
	s.active = false
	p.segments.add(float64(s.rounds))
}

// expire pauses the sessions whose time is over, and returns the others between two requests, those
// first that have been active for longest.
func (p *progress) expire(now float64) (idle []*program) {
	for s := range p.each {
		if s.open == nil && now >= s.deadline {
			p.pause(s)
		} else if s.open == nil {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b *program) int { return cmp.Or(cmp.Compare(a.began, b.began), a.number-b.number) })
	return idle
}

// Wake implements router: once a second it pauses sessions whose time is over, then those that there is
// no room for, and brings others back.
func (p *progress) Wake(now float64) (ids []int) {
	if now < p.checked+1 {
		return nil
	}
	p.checked = now
	idle := p.expire(now)
	for len(idle) > 0 && p.left() < 0 {
		p.pause(idle[0])
		idle = idle[1:]
	}
	back := func(ordered []int, may func(*program) bool) {
		for _, id := range ordered {
			if s := p.sessions[id]; !s.active && may(s) {
				p.queued.add(now - s.asked)
				p.start(now, s)
				ids = append(ids, s.open.ID)
			}
		}
	}
	back(p.came, func(s *program) bool { return now >= s.force })
	latest := slices.Clone(p.came)
	slices.SortStableFunc(latest, func(a, b int) int { return cmp.Compare(p.sessions[b].last, p.sessions[a].last) })
	back(latest, func(s *program) bool {
		for !p.fits(s.context) {
			if len(idle) == 0 {
				return false
			}
			p.pause(idle[0])
			idle = idle[1:]
		}
		return true
	})
	p.came = slices.DeleteFunc(p.came, func(id int) bool { return p.sessions[id].active })
	return ids
}

// Done implements simulator.Policy.
func (p *progress) Done(now float64, r *simulator.Request) {
	s := p.sessions[r.Session]
	s.open, s.last = nil, now
	s.context = r.Input + r.Output
	if s.before > 0 && s.context > s.before {
		p.growth.add(float64(s.context - s.before))
	}
	s.rounds, s.before = s.rounds+1, s.context
	p.rounds.add(float64(s.rounds))
	p.decodes.add(now - r.First)
	if s.deadline = now + p.ttl(s.context); s.deadline <= now || s.rounds >= mostRounds && len(p.came) > 0 {
		p.pause(s)
	}
}

// Left implements router.
func (p *progress) Left(now float64, r *simulator.Request) {
	s := p.sessions[r.Session]
	p.came = slices.DeleteFunc(p.came, func(id int) bool { return id == s.number })
	s.open = nil
}
