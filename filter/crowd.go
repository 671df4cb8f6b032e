package filter

import (
	"sync"
	"time"
)

// crowd counts the requests that MaxStreams limits: those whose body is complete, and
// those that wait for their body no longer than BodyWait. Clients that never send theirs
// take no other's place. The zero value is an empty crowd.
type crowd struct {
	mu      sync.Mutex
	counted int
	ends    place // both ends of the list of places that wait for a body, in the order of arrival
}

// place is a request's part in a crowd. The crowd's lock guards it.
type place struct {
	counted       bool
	since         time.Time
	before, after *place // nil: it does not wait
}

// enter counts a request that waits for its body, and reports whether there was room.
func (c *crowd) enter(p *place, o *ServerOptions, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.count(p, o, now) {
		return false
	}
	p.since, p.before, p.after = now, c.ends.before, &c.ends
	p.before.after, p.after.before = p, p
	return true
}

// complete is called when the body of a request is complete. It reports whether there is
// room for the request, if that has waited so long that it was no longer counted.
func (c *crowd) complete(p *place, o *ServerOptions, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlink(p)
	return p.counted || c.count(p, o, now)
}

// leave ends the count of a request.
func (c *crowd) leave(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlink(p)
	c.uncount(p)
}

func (c *crowd) count(p *place, o *ServerOptions, now time.Time) bool {
	if c.ends.after == nil {
		c.ends.before, c.ends.after = &c.ends, &c.ends
	}
	for late := c.ends.after; late != &c.ends && now.Sub(late.since) >= o.BodyWait; late = c.ends.after {
		c.unlink(late)
		c.uncount(late)
	}
	if c.counted >= o.MaxStreams {
		return false
	}
	c.counted++
	p.counted = true
	return true
}

func (c *crowd) uncount(p *place) {
	if p.counted {
		c.counted--
		p.counted = false
	}
}

func (c *crowd) unlink(p *place) {
	if p.after != nil {
		p.before.after, p.after.before = p.after, p.before
		p.before, p.after = nil, nil
	}
}
