package prefixcache

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Hash is the hash of a text's beginning.
type Hash = xxh3.Uint128

// Seed is the random key of hashes.
type Seed uint64

// NewSeed returns a random seed.
func NewSeed() Seed { return Seed(rand.Uint64()) }

// Add returns the hash of h's beginning with text behind it. The cuts count: the same
// text in other parts has another hash.
func (s Seed) Add(h Hash, text []byte) Hash {
	d := xxh3.Hash128Seed(text, uint64(s))
	// The order of the parts and both halves of d change the result.
	hi := Spread(h.Hi^d.Lo, uint64(s))
	return Hash{Hi: hi, Lo: Spread(h.Lo+bits.RotateLeft64(d.Hi, 32), hi)}
}

// Spread mixes two words into one: the halves of their 128-bit product.
func Spread(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b|1)
	return hi ^ lo ^ bits.RotateLeft64(a, 23)
}

// Entry holds the value of one beginning.
type Entry[V any] struct {
	Value      V // an addition to Parent's value
	Parent     *Entry[V]
	hash       Hash
	size       int64
	prev, next *Entry[V]
	live       bool
}

// Cache holds entries up to a limit in bytes. It has one lock: in a cache of several
// parts, chosen by the beginnings of texts, all texts with one beginning would share
// the memory of one part.
type Cache[V any] struct {
	mu      sync.Mutex
	entries map[Hash]*Entry[V]
	recent  Entry[V] // ring: recent.next is the most recently used
	size    int64
	limit   int64
}

// New returns a cache of at most limit bytes.
func New[V any](limit int64) *Cache[V] {
	c := &Cache[V]{entries: map[Hash]*Entry[V]{}, limit: limit}
	c.recent.next, c.recent.prev = &c.recent, &c.recent
	return c
}

// Deepest returns the entry of the last of n hashes that has an entry, nil if none has.
// The entry and its ancestors become the most recently used.
func (c *Cache[V]) Deepest(n int, hash func(i int) Hash) *Entry[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := n - 1; i >= 0; i-- {
		if e := c.entries[hash(i)]; e != nil {
			c.touch(e)
			return e
		}
	}
	return nil
}

// touch makes e and its ancestors the most recently used. Parents stay more recent than
// their children, so the least recently used entry is always a leaf.
func (c *Cache[V]) touch(e *Entry[V]) {
	for ; e != nil; e = e.Parent {
		if e.live {
			e.unlink()
			c.front(e)
		}
	}
}

func (e *Entry[V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (c *Cache[V]) front(e *Entry[V]) {
	e.prev, e.next = &c.recent, c.recent.next
	e.prev.next, e.next.prev = e, e
}

// Remember adds entries for n beginnings, each longer than the beginning before it, the
// first longer than parent's. For a beginning without an entry it calls make, which
// returns the entry's value and the value's memory in bytes; before is the value of the
// beginning before it, nil for the first without a parent.
func (c *Cache[V]) Remember(parent *Entry[V], n int, hash func(i int) Hash, make func(i int, before *V) (V, int64)) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if parent != nil && !parent.live { // evicted: its children would stay without it
		return
	}
	for i := range n {
		h := hash(i)
		e := c.entries[h]
		if e == nil {
			e = &Entry[V]{Parent: parent, hash: h, live: true}
			var before *V
			if parent != nil {
				before = &parent.Value
			}
			e.Value, e.size = make(i, before)
			e.size += overhead + int64(unsafe.Sizeof(*e))
			c.entries[h] = e
			c.front(e)
			c.size += e.size
		}
		parent = e
	}
	c.touch(parent)
	for c.size > c.limit && c.recent.prev != &c.recent {
		c.evict(c.recent.prev)
	}
}

// overhead is the memory of an entry in the map, in bytes.
const overhead = 48

func (c *Cache[V]) evict(e *Entry[V]) {
	e.unlink()
	e.live = false
	delete(c.entries, e.hash)
	c.size -= e.size
}

// Stats returns the number of entries and their memory in bytes.
func (c *Cache[V]) Stats() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.size
}
