package agents

import (
	"errors"
	"fmt"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// router is a policy that may hold requests.
type router interface {
	simulator.Policy
	// Wake returns the held requests that may be routed again.
	Wake(now float64) []int
	// Left records that the client of a held request, or of one that was sent, has gone.
	Left(now float64, r *simulator.Request)
}

// newRouter returns the policy of a name.
func newRouter(name string, o *Options) (router, error) {
	switch name {
	case "today", "hold":
		b := brain.Options{Replicas: o.Replicas, Block: block, Capacity: o.Tokens, Policy: speeds(o.Rate)}
		if name == "hold" {
			b.Policy.Sessions = policy.Sessions{Share: o.Share}
		}
		if o.Routers > 1 {
			return several(o, b)
		}
		p, err := brain.NewHolding(b)
		if err != nil {
			return nil, err
		}
		return p, nil
	case "naive":
		return &naive{o: o, sessions: map[int]*slot{}, at: map[int]*slot{}}, nil
	case "progress":
		if o.Replicas > 1 {
			return nil, errors.New("agents: the policy progress is for one replica")
		}
		return &progress{o: o, sessions: map[int]*program{}}, nil
	}
	return nil, fmt.Errorf("agents: there is no policy %q: the policies are today, naive, progress, hold", name)
}

// several returns so many routers of a policy.
func several(o *Options, b brain.Options) (router, error) {
	b.Seed = o.Seed
	rs, err := brain.NewHoldingRouters(o.Routers, o.Delay, b)
	if err != nil {
		return nil, err
	}
	return rs, nil
}

// speeds returns the router's settings for replicas with such a prefill rate.
func speeds(rate float64) policy.Config {
	token, pair := 1/rate, 0.0
	return policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"prefill_token": &token, "prefill_pair": &pair}}}
}

// lease is how long the naive hold keeps a session's room after its answer, in s.
const lease = 60

// naive holds every request whose session has no room, as ThunderAgent does: it knows sessions by
// their ids, and a session has room until it has been idle for a lease.
type naive struct {
	simulator.Ignored
	o        *Options
	sessions map[int]*slot // by session
	at       map[int]*slot // by request
	queue    []*simulator.Request
}

// slot is the room of a session.
type slot struct {
	replica, tokens int
	open            int
	last            float64
}

// fits returns the replica with most room for a request of a session without any; -1: there is none.
func (n *naive) fits(now float64, r *simulator.Request) int {
	used := make([]int, n.o.Replicas)
	for id, s := range n.sessions {
		if s.open == 0 && now-s.last > lease {
			delete(n.sessions, id)
			continue
		}
		used[s.replica] += s.tokens
	}
	if s := n.sessions[r.Session]; s != nil {
		return s.replica
	}
	best := 0
	for i := range used {
		if used[i] < used[best] {
			best = i
		}
	}
	if used[best] > 0 && used[best]+r.Input+r.Output > n.o.Tokens {
		return -1
	}
	return best
}

// Route implements simulator.Policy.
func (n *naive) Route(now float64, r *simulator.Request) int {
	to := n.fits(now, r)
	if to < 0 {
		n.queue = append(n.queue, r)
		return brain.Held
	}
	s := n.sessions[r.Session]
	if s == nil {
		s = &slot{replica: to}
		n.sessions[r.Session] = s
	}
	s.tokens = r.Input + r.Output
	s.open++
	n.at[r.ID] = s
	return to
}

// Wake implements router.
func (n *naive) Wake(now float64) []int {
	if len(n.queue) == 0 || n.fits(now, n.queue[0]) < 0 {
		return nil
	}
	r := n.queue[0]
	n.queue = n.queue[1:]
	return []int{r.ID}
}

// Done implements simulator.Policy.
func (n *naive) Done(now float64, r *simulator.Request) {
	if s := n.at[r.ID]; s != nil {
		s.open--
		s.last = now
		delete(n.at, r.ID)
	}
}

// Left implements router.
func (n *naive) Left(now float64, r *simulator.Request) {
	for i, q := range n.queue {
		if q.ID == r.ID {
			n.queue = append(n.queue[:i:i], n.queue[i+1:]...)
			return
		}
	}
	n.Done(now, r)
}
