package history

import (
	"math"
	"sync/atomic"
	"time"
)

// growth is how many tokens count as coming for each one that a holder lacks and is sent, or was
// sent within the time after which prompts are used again: the turns that go on from it, and others
// like it.
const growth = 3

// outlook is what a cache will evict.
type outlook struct {
	clock  int64        // Unix ns; it never goes back
	again  int64        // ns that prompts take to be used again
	sent   float64      // tokens that the holder lacked, weighted by age
	sentAt int64        // Unix ns, of sent
	looked atomic.Int64 // Unix ns, of spare and due; 0 = they are out of date
	spare  atomic.Int64 // tokens that are free, or expected never to be used again; unsized = the capacity is not known
	due    atomic.Int64 // tokens that are coming beside a request

	sized   atomic.Int64 // the capacity, 0 if it is not known
	open    int          // requests in flight
	running atomic.Int64 // tokens of these with their whole answers, as far as they were sent through here
	unseen  atomic.Int64 // tokens in use beyond these, by the latest page; below 0: answers have not grown to their length
}

// unsized is no number of tokens.
const unsized = math.MinInt64

// looks is how often the outlook is renewed in the time after which prompts are used again.
const looks = 16

// Worth returns the share of what the holder evicts for a request that lacks so many tokens there,
// and for what else is coming, that is expected to be used again, if prompts are used again after
// such a time. What is free, or expected never to be used again, goes first. It reports false if the
// holder does not name the size of its cache.
func (c *Cache) Worth(missing int, now time.Time, again time.Duration) (share float64, known bool) {
	at := now.UnixNano()
	if looked := c.looked.Load(); looked == 0 || at-looked > int64(again)/looks {
		c.mu.Lock()
		c.again = int64(again)
		c.look(c.reach(at))
		c.mu.Unlock()
	}
	spare := c.spare.Load()
	if spare == unsized {
		return 0, false
	}
	coming := c.due.Load() + growth*int64(max(1, missing))
	return min(1, max(0, 1-float64(spare)/float64(coming))), true
}

// growing is the share of what the answers in flight are expected to add that counts as used already:
// others end meanwhile. With none of it, requests go to replicas that fill up before they are
// computed; with all, one whose answers are young counts as full.
const growing = 0.25

// Used returns the tokens of the cache that requests in flight use, and how many they will use when
// their answers have grown to their length. Both are 0 where the holder does not name the size.
func (c *Cache) Used() (now, grown float64) {
	if c.sized.Load() == 0 {
		return 0, 0
	}
	grown = float64(c.running.Load())
	now = max(0, grown+float64(c.unseen.Load()))
	grown = max(grown, now)
	return now + growing*(grown-now), grown
}

// Room returns the time until the requests in flight have left room for so many tokens more, if
// answers end one after the other, and how much longer others that come later wait for these tokens.
// Both are 0 where the holder does not name the size of its cache, or its answers' times.
func (c *Cache) Room(tokens int) (seconds, own float64) {
	size, need := float64(c.sized.Load()), float64(tokens)
	used, grown := c.Used()
	if grown == 0 {
		return 0, 0
	}
	each := c.answer.seconds.Of(0, 0) / min(grown, size) // s until answers that end have left a token's room
	return each * max(0, used+need-size), each * min(need, max(0, grown+need-size))
}

// Share returns the share of the cache that so many tokens are, at most 1; 0 where the holder does not
// name its size.
func (c *Cache) Share(tokens float64) float64 {
	size := float64(c.sized.Load())
	if size == 0 {
		return 0
	}
	return min(1, tokens/size)
}

// opened counts requests in flight, and the tokens that these use: all but those in the list.
func (c *Cache) opened(requests int) {
	c.open += requests
	c.running.Store(int64(c.tokens - c.listed))
}

// took records that the holder was sent tokens that it lacked.
func (c *Cache) took(missing int, now int64) {
	c.sent, c.sentAt = c.coming(now)+float64(missing), now
	c.looked.Store(0)
}

// coming returns the tokens that the holder lacked and was sent lately.
func (c *Cache) coming(now int64) float64 {
	if c.sent == 0 || now == c.sentAt {
		return c.sent
	}
	return c.sent * math.Exp(-float64(now-c.sentAt)/float64(max(1, c.again)))
}

// look renews the outlook.
func (c *Cache) look(now int64) {
	c.looked.Store(now)
	if c.learner != nil {
		c.spare.Store(unsized)
		return
	}
	c.spare.Store(int64(float64(c.capacity-c.tokens) + c.ages.idle(now, c.again)))
	c.due.Store(int64(growth * c.coming(now)))
}

// reach makes the ages reach to now, and returns it, or a later time that was now before.
func (c *Cache) reach(now int64) int64 {
	c.clock = max(c.clock, now)
	c.order.reach(c.clock)
	return c.clock
}
