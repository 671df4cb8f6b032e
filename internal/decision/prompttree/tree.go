package prompttree

import (
	"math"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

// tree is the tree of one model. Its methods need the lock of Trees.
type tree struct {
	o       *Options
	entries map[prefixhash.Key]*entry
	newest  *entry // list by age, newest first
	oldest  *entry
	weights map[index.HolderID]weight
	free    *entry // entries to use again, linked by older
}

type entry struct {
	key          prefixhash.Key
	holder       index.HolderID
	seen         int64 // Unix nanoseconds
	newer, older *entry
}

// weight is a sum of 2^(-age/half-life) over a holder's entries, as of at.
type weight struct {
	sum float64
	at  int64
}

func newTree(o *Options) *tree {
	return &tree{o: o, entries: map[prefixhash.Key]*entry{}, weights: map[index.HolderID]weight{}}
}

// observe names h on all entries of the path, deepest first, so that no entry becomes newer
// than its parent.
func (t *tree) observe(chain []prefixhash.Key, h index.HolderID, now int64, ttl time.Duration) {
	t.expire(now, ttl)
	added := 0.0
	for i := len(chain) - 1; i >= 0; i-- {
		n := t.entries[chain[i]]
		if n == nil {
			n = t.make(chain[i])
		} else {
			t.unlink(n)
			t.weigh(n.holder, -t.decay(now-n.seen), now)
		}
		n.holder, n.seen = h, now
		t.link(n)
		added++
	}
	t.weigh(h, added, now)
	for len(t.entries) > t.o.MaxEntries {
		t.drop(t.oldest, now)
	}
}

// expire drops entries older than ttl. An entry is never dropped before its descendants.
func (t *tree) expire(now int64, ttl time.Duration) {
	for t.oldest != nil && now-t.oldest.seen > int64(ttl) {
		t.drop(t.oldest, now)
	}
}

// match walks down the chain and calls yield with the holder and the depth of each entry
// that is alive; the last call for a holder has its greatest depth.
func (t *tree) match(chain []prefixhash.Key, now int64, ttl time.Duration, gone map[index.HolderID]int64, yield func(h index.HolderID, depth int)) {
	for i, key := range chain {
		n := t.entries[key]
		if n == nil || now-n.seen > int64(ttl) {
			return
		}
		if left, ok := gone[n.holder]; ok && n.seen <= left {
			continue // served by a replica that is gone; others may be named below
		}
		yield(n.holder, i+1)
	}
}

func (t *tree) weightOf(h index.HolderID, now int64) float64 {
	w := t.weights[h]
	return w.sum * t.decay(now-w.at)
}

// weigh adds to a holder's weight.
func (t *tree) weigh(h index.HolderID, by float64, now int64) {
	sum := t.weightOf(h, now) + by
	if sum < 1e-6 { // less than any entry that is alive: the sum of many small errors
		delete(t.weights, h)
		return
	}
	t.weights[h] = weight{sum, now}
}

func (t *tree) decay(age int64) float64 { return math.Exp2(-float64(age) / float64(t.o.HalfLife)) }

func (t *tree) make(key prefixhash.Key) *entry {
	n := t.free
	if n == nil {
		n = new(entry)
	} else {
		t.free = n.older
	}
	*n = entry{key: key}
	t.entries[key] = n
	return n
}

func (t *tree) drop(n *entry, now int64) {
	t.weigh(n.holder, -t.decay(now-n.seen), now)
	t.unlink(n)
	delete(t.entries, n.key)
	n.older, t.free = t.free, n
}

func (t *tree) link(n *entry) {
	n.newer, n.older = nil, t.newest
	if t.newest != nil {
		t.newest.newer = n
	}
	t.newest = n
	if t.oldest == nil {
		t.oldest = n
	}
}

func (t *tree) unlink(n *entry) {
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		t.newest = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		t.oldest = n.newer
	}
}

// nanos returns a time in Unix nanoseconds.
func nanos(at time.Time) int64 { return at.UnixNano() }
