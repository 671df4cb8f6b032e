package prefixcache

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Hash stands for a beginning of a text.
type Hash = xxh3.Uint128

// Seed keys hashes.
type Seed uint64

// NewSeed returns a random one.
func NewSeed() Seed { return Seed(rand.Uint64()) }

// Add is the hash of what h stands for with text behind it. How a text is cut
// counts: the same text in other parts has another hash.
func (s Seed) Add(h Hash, text []byte) Hash {
	d := xxh3.Hash128Seed(text, uint64(s))
	// Order and both halves matter.
	hi := Spread(h.Hi^d.Lo, uint64(s))
	return Hash{Hi: hi, Lo: Spread(h.Lo+bits.RotateLeft64(d.Hi, 32), hi)}
}

// Spread mixes two words into one: the halves of their 128-bit product.
func Spread(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b|1)
	return hi ^ lo ^ bits.RotateLeft64(a, 23)
}

// Entry is what is known of one beginning.
type Entry[V any] struct {
	Value      V // what it adds to Parent's
	Parent     *Entry[V]
	hash       Hash
	size       int64
	prev, next *Entry[V]
	live       bool
}

// Cache holds entries of at most a number of bytes. It has one lock: were it split
// by how texts begin, texts with one beginning would have to do with a fraction of
// the room.
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

// Deepest returns the entry of the last of n hashes that is known, and makes it and
// its ancestors the most recent; nil if none is.
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

// touch keeps parents more recent than their children, so that the least recent
// entry is always a leaf.
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

// Remember enters n beginnings, each a longer one than the one before, the first
// longer than parent's. make gives the value of the i-th and its memory besides
// the entry itself, given the value of the one before (nil: there is none); it is
// called only for those without an entry.
func (c *Cache[V]) Remember(parent *Entry[V], n int, hash func(i int) Hash, make func(i int, before *V) (V, int64)) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if parent != nil && !parent.live { // evicted meanwhile: its children would be unreachable
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

// overhead is what an entry's place in the map costs.
const overhead = 48

func (c *Cache[V]) evict(e *Entry[V]) {
	e.unlink()
	e.live = false
	delete(c.entries, e.hash)
	c.size -= e.size
}

// Stats counts the entries and the bytes they take.
func (c *Cache[V]) Stats() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.size
}
