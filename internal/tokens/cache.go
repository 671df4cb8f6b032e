package tokens

import (
	"container/list"
	"sync"
	"time"
)

// cache keeps replicas' answers, and drops the least recently used ones when
// their size passes the budget.
type cache struct {
	limit int

	mu    sync.Mutex // held for map and list operations only
	size  int
	order *list.List // of *cached, most recently used first
	byKey map[key]*list.Element
}

type cached struct {
	key    key
	result Result
	err    error
	size   int
	until  time.Time
}

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), byKey: map[key]*list.Element{}}
}

// get returns the entry of k. ok is false when there is none.
func (c *cache) get(k key, now time.Time) (Result, error, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[k]
	if e == nil {
		return Result{}, nil, false
	}
	v := e.Value.(*cached)
	if now.After(v.until) {
		c.drop(e)
		return Result{}, nil, false
	}
	c.order.MoveToFront(e)
	return v.result, v.err, true
}

// overhead is the approximate size of an entry besides its prompts: the entry, its
// list element and its place in the map.
const overhead = 256

// put keeps an answer, or a refusal, for ttl.
func (c *cache) put(k key, result Result, err error, now time.Time, ttl time.Duration) {
	size := overhead + result.bytes()
	if size > c.limit/4 {
		return // one answer must not push out all others
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[k]; e != nil {
		c.drop(e)
	}
	c.byKey[k] = c.order.PushFront(&cached{k, result, err, size, now.Add(ttl)})
	for c.size += size; c.size > c.limit; {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	v := c.order.Remove(e).(*cached)
	delete(c.byKey, v.key)
	c.size -= v.size
}
