package history

import (
	"sync"
	"time"

	"warmroute/index"
)

// History holds the caches of all holders.
type History struct{ caches sync.Map } // index.Holder → *Cache

// Of returns the cache of h, which stays the same object until h's replica is dropped.
func (h *History) Of(at index.Holder) *Cache {
	if c, ok := h.caches.Load(at); ok {
		return c.(*Cache)
	}
	c, _ := h.caches.LoadOrStore(at, newCache())
	return c.(*Cache)
}

// Clear empties a replica's caches: its process has ended. It reports whether they had
// anything.
func (h *History) Clear(replica string) (any bool) {
	h.each(replica, func(_ index.Holder, c *Cache) { any = c.Clear() || any })
	return any
}

// Drop removes a replica's caches. It reports whether they had anything.
func (h *History) Drop(replica string, now time.Time) (any bool) {
	h.each(replica, func(at index.Holder, c *Cache) {
		any = c.Clear() || any
		h.caches.Delete(at)
		c.visiting.Lock()
		defer c.visiting.Unlock()
		c.leave(len(c.inFlight), false, now, func(*visit) bool { return true })
		c.dropped = true
	})
	return any
}

// All calls yield for each holder's cache.
func (h *History) All(yield func(at index.Holder, c *Cache) bool) {
	h.caches.Range(func(at, c any) bool { return yield(at.(index.Holder), c.(*Cache)) })
}

func (h *History) each(replica string, f func(at index.Holder, c *Cache)) {
	h.caches.Range(func(at, c any) bool {
		if at := at.(index.Holder); at.Replica == replica {
			f(at, c.(*Cache))
		}
		return true
	})
}
