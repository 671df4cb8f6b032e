package history

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/learned"
	"warmroute/prefixhash"
)

// Cache is the model of one holder's cache. See the package comment.
type Cache struct {
	mu       sync.Mutex
	capacity int
	tokens   int          // of the nodes that are not evicted, and the rests of the requests in flight
	evicted  atomic.Int64 // of the evicted nodes; 0 = Keeps need not look
	expected atomic.Int64 // Unix ns; no node is due later
	learner  *learner     // of the capacity; nil: it is named
	answer   answers
	latest   time.Time                // use
	life     uint32                   // rises when the cache is emptied
	nodes    map[prefixhash.Key]*node // by first key
	weight   learned.Fading           // tokens that were sent and that it lacked
	order
	outlook
	visits
}

// node is a stretch of a prompt.
type node struct {
	keys         []prefixhash.Key
	marks        *prefixhash.Marks
	seen         int64 // Unix ns
	due          int64 // Unix ns; until then it is expected on its way to the holder (Coming); 0 = it is not
	whole        int64 // Unix ns; the same for prompts that end here
	first        int32 // the number of marks before the keys
	rest         int32 // tokens behind the keys that no prompt is known to match
	pins         int32 // requests in flight that use it; it is in the list if there are none
	evicted      bool  // it counts as absent, and is kept to know that it was evicted
	shared       bool  // more than one request has used it
	newer, older *node
}

// Prompt is a prompt by its keys at marks, from the first one on.
type Prompt struct {
	Keys  []prefixhash.Key
	Marks *prefixhash.Marks
}

// Last returns the last key of a prompt that has any: it stands for all of them.
func (p Prompt) Last() prefixhash.Key { return p.Keys[len(p.Keys)-1] }

func newCache() *Cache {
	c := &Cache{capacity: DefaultCapacity, nodes: map[prefixhash.Key]*node{}, learner: newLearner()}
	c.order.clear()
	return c
}

// SetCapacity sets the tokens that the holder's cache has room for, which are then no longer
// learned.
func (c *Cache) SetCapacity(tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.capacity != tokens || c.learner != nil {
		c.capacity, c.learner = tokens, nil
		c.sized.Store(int64(tokens))
		c.evict()
		c.looked.Store(0)
	}
}

// longest is how long a use counts: a replica whose cache is that old has been idle, or has
// lost it in a way that nobody has seen.
const longest = 24 * time.Hour

// Match returns the tokens of a prompt that the cache has.
func (c *Cache) Match(p Prompt, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest, end := now.Add(-longest).UnixNano(), 0
	for n, same := range c.along(p.Keys) {
		if n.evicted || n.seen < oldest {
			break
		}
		end += same
	}
	return p.Marks.End(end)
}

// along yields the nodes along keys, each with the number of its keys that go on with these.
func (c *Cache) along(keys []prefixhash.Key) iter.Seq2[*node, int] {
	return func(yield func(n *node, same int) bool) {
		for len(keys) > 0 {
			n := c.nodes[keys[0]]
			if n == nil {
				return
			}
			same := n.same(keys)
			if !yield(n, same) || same < len(n.keys) {
				return
			}
			keys = keys[same:]
		}
	}
}

// Expect records until when a prompt in use counts as coming: by then the holder's events tell
// whether it is there. The zero time takes it back.
func (c *Cache) Expect(p Prompt, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := until.UnixNano()
	if until.IsZero() {
		due = 0
	}
	c.expected.Store(max(c.expected.Load(), due))
	end := 0
	for n, same := range c.along(p.Keys) { // there are none if the cache was emptied
		end += same
		if n.pins == 1 { // no other request
			n.due, n.whole = due, min(n.whole, due)
		}
		if n.due = max(n.due, due); end == len(p.Keys) {
			n.whole = max(n.whole, due)
		}
	}
}

// Coming returns the tokens of a prompt that requests which were sent to the holder have, if their
// events may not have come yet, and how many tokens the longest of them has that has no others.
func (c *Cache) Coming(p Prompt, now time.Time) (tokens, whole int) {
	at := now.UnixNano()
	if c.expected.Load() <= at {
		return 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	end := 0
	for n, same := range c.along(p.Keys) {
		if n.due <= at {
			break
		}
		if end += same; same == len(n.keys) && n.whole > at {
			whole = end
		}
	}
	return p.Marks.End(end), p.Marks.End(whole)
}

// Keeps returns the tokens of a prompt before those that the cache has evicted, or that the
// requests on their way to the holder will evict; it reports false if it knows of none. It says
// nothing while requests in flight alone exceed the cache: which of them comes first decides.
func (c *Cache) Keeps(p Prompt) (tokens int, known bool) {
	if c.evicted.Load() == 0 {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens > c.capacity {
		return 0, false
	}
	end := 0
	for n, same := range c.along(p.Keys) {
		if n.evicted {
			return p.Marks.End(end), true
		}
		end += same
	}
	return 0, false
}

// Hold is a use of a prompt by a request that has not ended.
type Hold struct {
	had  int32          // the marks that the cache had before, the evicted ones too
	kept int32          // of these, marks that were not evicted
	rest int32          // the tokens behind the last mark
	life uint32         // Cache.life
	own  prefixhash.Key // the first one that the cache did not have; 0 = it had all
}

// Use records that the holder was sent a prompt, and that rest tokens follow the last mark:
// the end of the prompt, and the answer. They stay until End.
func (c *Cache) Use(p Prompt, rest int, now time.Time) Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.reach(now.UnixNano())
	had, kept := c.pin(p, at)
	h := Hold{had: int32(had), kept: int32(kept), rest: int32(rest), life: c.life}
	if had < len(p.Keys) {
		h.own = p.Keys[had]
	}
	c.tokens += rest
	c.evict()
	lacked := p.Marks.End(len(p.Keys)) - p.Marks.End(kept)
	c.weight.Add(float64(lacked), now.UnixNano())
	c.took(lacked, at)
	c.opened(1)
	return h
}

// Relied records that the cache stands for the holder's, which reports nothing.
func (c *Cache) Relied(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = now
}

// pin takes the nodes of a prompt out of the list, and adds one for the keys that are new.
// It returns the number of keys that are not, and of these, of those that are not evicted.
func (c *Cache) pin(p Prompt, now int64) (i, kept int) {
	var last *node
	for n, same := range c.along(p.Keys) {
		if same < len(n.keys) {
			c.split(n, same)
		}
		if !n.evicted {
			kept = i + same
		} else {
			c.follow(last)
		}
		if n.pins == 0 {
			c.unlink(n)
		}
		n.pins, n.seen, n.shared = n.pins+1, now, true
		last, i = n, i+same
	}
	if i == len(p.Keys) {
		return i, kept
	}
	c.follow(last)
	n := &node{keys: slices.Clone(p.Keys[i:]), marks: p.Marks, first: int32(i), seen: now, pins: 1}
	c.nodes[p.Keys[i]] = n
	c.tokens += n.tokens()
	return i, kept
}

// follow drops the rest of n, if there is such a node: a prompt goes on where an answer was.
func (c *Cache) follow(n *node) {
	if n != nil {
		c.tokens, n.rest = c.tokens-int(n.rest), 0
	}
}

// End ends a use. What the request used can be evicted from now on; if it was not computed,
// what was new is gone.
func (c *Cache) End(p Prompt, h Hold, computed bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.life != c.life {
		return
	}
	at := c.reach(now.UnixNano())
	c.tokens -= int(h.rest)
	var space [16]*node
	path := space[:0]
	for n := range c.along(p.Keys) {
		path = append(path, n)
	}
	if computed {
		c.answered(path, p.Marks, h.rest, at)
	}
	for _, n := range slices.Backward(path) { // the first one becomes the newest
		n.pins--
		switch {
		case n.pins > 0:
		case !computed && n.first >= h.had:
			c.tokens -= n.tokens()
			delete(c.nodes, n.keys[0])
		default:
			if n.seen = at; !computed {
				n.due, n.whole = 0, 0
			}
			c.link(n, c.ends.older)
		}
	}
	c.evict()
	c.looked.Store(0)
	c.opened(-1)
}

// Refused takes back what an ended use has added, if no other request has used it: the prompt was
// not computed.
func (c *Cache) Refused(h Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[h.own]
	if n == nil || h.life != c.life || n.first != h.had || n.pins > 0 || n.shared {
		return
	}
	c.unlink(n)
	c.tokens -= n.tokens()
	delete(c.nodes, h.own)
	c.looked.Store(0)
}

// mostJoined bounds the tokens of answers in a row that share a node.
const mostJoined = 8192

// answered puts the rest of a request behind its last node, or in a node of its own if
// there is another answer or prompt.
func (c *Cache) answered(path []*node, m *prefixhash.Marks, rest int32, now int64) {
	c.tokens += int(rest)
	if len(path) > 0 {
		if last := path[len(path)-1]; last.rest == 0 && last.pins == 1 {
			last.rest = rest
			return
		}
	}
	if n := c.ends.older; n != &c.ends && len(n.keys) == 0 && !n.evicted && n.rest+rest <= mostJoined {
		c.count(n, -int(n.rest))
		n.seen, n.rest = now, n.rest+rest
		c.count(n, int(n.rest))
	} else if rest > 0 {
		c.link(&node{marks: m, rest: rest, seen: now}, c.ends.older)
	}
}

// split cuts n after some of its keys. What is behind them stays in its place of the list.
func (c *Cache) split(n *node, at int) {
	tail := &node{keys: n.keys[at:], marks: n.marks, first: n.first + int32(at), rest: n.rest, seen: n.seen, due: n.due, whole: n.whole, pins: n.pins, evicted: n.evicted, shared: n.shared}
	n.keys, n.rest, n.whole = slices.Clone(n.keys[:at]), 0, 0
	c.nodes[tail.keys[0]] = tail
	if n.pins == 0 {
		c.count(n, -tail.tokens())
		c.link(tail, n.older)
	}
}

// evict evicts what was used least recently, until the tokens fit, and drops evicted nodes
// that are more than the cache has room for.
func (c *Cache) evict() {
	for c.tokens > c.capacity && c.edge != &c.ends {
		n, over := c.edge, c.tokens-c.capacity
		cut := min(int(n.rest), over) // no prompt is known to match it
		n.rest, c.tokens, over = n.rest-int32(cut), c.tokens-cut, over-cut
		c.count(n, -cut)
		keep := n.within(over)
		switch {
		case keep == 0 && n.rest == 0:
			c.expire(n)
		case keep < len(n.keys):
			c.split(n, keep)
			c.expire(c.edge)
		}
	}
	for int(c.evicted.Load()) > c.capacity {
		n := c.ends.newer
		c.evicted.Add(-int64(n.tokens()))
		delete(c.nodes, n.keys[0])
		n.remove()
	}
}

// expire evicts n, which is the edge.
func (c *Cache) expire(n *node) {
	c.edge = n.newer
	c.tokens -= n.tokens()
	c.count(n, -n.tokens())
	if len(n.keys) == 0 {
		n.remove()
		return
	}
	n.evicted = true
	c.evicted.Add(int64(n.tokens()))
}

// InUse reports whether a request has used the cache.
func (c *Cache) InUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.latest.IsZero()
}

// Capacity returns the tokens that the cache has room for, and whether they are learned.
func (c *Cache) Capacity() (tokens int, learned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.capacity, c.learner != nil
}

// Clear empties the cache. It reports whether it had anything.
func (c *Cache) Clear() (any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	any = c.tokens > 0
	clear(c.nodes)
	c.order.clear()
	c.tokens, c.weight = 0, learned.Fading{}
	c.evicted.Store(0)
	c.opened(-c.open)
	c.life++
	return any
}

// ClearUnused empties the cache if no request has used it since then.
func (c *Cache) ClearUnused(since time.Time) {
	c.mu.Lock()
	last := c.latest
	c.mu.Unlock()
	if last.Before(since) {
		c.Clear()
	}
}

// Weight returns the tokens of prompts that the holder was sent and lacked, weighted by age.
func (c *Cache) Weight(now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.weight.Of(now.UnixNano())
}

// unlink takes n out of the list. It is no longer evicted.
func (c *Cache) unlink(n *node) {
	c.count(n, -n.tokens())
	switch {
	case n.evicted:
		n.evicted = false
		c.evicted.Add(-int64(n.tokens()))
		c.tokens += n.tokens()
	case n == c.edge:
		c.edge = n.newer
	}
	n.remove()
}

// same returns how many of n's keys begin keys.
func (n *node) same(keys []prefixhash.Key) int {
	most := min(len(n.keys), len(keys))
	for i := range most {
		if n.keys[i] != keys[i] {
			return i
		}
	}
	return most
}

// within returns the number of n's keys that stay if at least so many tokens of them go, from
// the end on.
func (n *node) within(over int) int {
	keep := len(n.keys)
	for keep > 0 && n.behind(keep) < over {
		keep--
	}
	return keep
}

// behind returns the tokens of the keys of n behind the first ones.
func (n *node) behind(keys int) int {
	return n.marks.End(int(n.first)+len(n.keys)) - n.marks.End(int(n.first)+keys)
}

// tokens returns the tokens of n.
func (n *node) tokens() int {
	return n.behind(0) + int(n.rest)
}
