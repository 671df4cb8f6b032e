package index

import (
	"sync/atomic"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/radix"
)

// Bounds of the memory of removals, which exists to explain a match. A removal takes 24
// bytes. A busy replica removes the blocks of a prompt from the last to the first, so one
// removal mostly stands for a whole prompt.
const (
	maxRemovals    = 8192    // of a holder
	leastRemovals  = 64      // of a holder, whatever the others have
	maxAllRemovals = 2 << 20 // of all holders that have more than leastRemovals: 48 MiB
)

// removal is a stretch of a chain that a holder removed from its end to its start.
type removal struct {
	first, last uint64 // keys: of the block that went last, and of the one furthest from the start
	at          uint32 // when the first went: tenths of a second since the index was made
	blocks      uint16
	group       uint16
}

// removals are the last removals of a holder, in a ring that grows up to its bound. The
// holder's lock guards them.
type removals struct {
	ring  []removal
	next  int    // where the next removal goes
	lost  uint32 // removals before this time are forgotten; 0: none is
	at    uint32 // the time of the events that are being applied
	total *atomic.Int64

	open *removal // the newest one, of a node's blocks from an offset on: it grows towards the start
	in   *shard
	node uint32
	from int
}

// tenths returns a time in the unit of removals.
func (x *Index) tenths(ns int64) uint32 { return uint32(max(0, ns-x.start) / int64(tenth)) }

// timeOf returns the time of a removal.
func (x *Index) timeOf(tenths uint32) time.Time {
	return time.Unix(0, x.start+int64(tenths)*int64(tenth))
}

const tenth = 100 * time.Millisecond

// stretch remembers the blocks of a node from one offset to another, which the holder has
// at the end of its part of the node.
func (r *removals) stretch(sh *shard, node uint32, from, to int) {
	first := sh.nodes.Key(radix.At(node, from))
	if r.open != nil && r.in == sh && r.node == node && r.from == to {
		r.open.first, r.open.at, r.open.blocks, r.from = first, r.at, r.open.blocks+uint16(to-from), from
		return
	}
	r.put(removal{first: first, last: sh.nodes.Key(radix.At(node, to-1)), at: r.at, blocks: uint16(to - from), group: uint16(sh.key.group)})
	r.in, r.node, r.from = sh, node, from
}

func (r *removals) put(e removal) {
	if r.next == len(r.ring) && !r.grow() {
		r.next = 0
	}
	if old := &r.ring[r.next]; old.blocks > 0 {
		r.lost = max(r.lost, old.at+1)
	}
	r.ring[r.next] = e
	r.open = &r.ring[r.next]
	r.next++
}

// grow doubles a ring that has not wrapped yet, within the bounds.
func (r *removals) grow() bool {
	n := max(leastRemovals, 2*len(r.ring))
	more := int64(n - len(r.ring))
	if n > maxRemovals || r.lost > 0 {
		return false
	}
	if r.total.Add(more) > maxAllRemovals && n > leastRemovals {
		r.total.Add(-more)
		return false
	}
	ring := make([]removal, n)
	copy(ring, r.ring)
	r.ring, r.open = ring, nil
	return true
}

// forget drops all removals: the holder has lost all its blocks.
func (r *removals) forget() {
	clear(r.ring)
	r.next, r.lost, r.open = 0, 0, nil
}

// drop forgets all removals and gives their memory back.
func (r *removals) drop() {
	r.total.Add(-int64(len(r.ring)))
	*r = removals{total: r.total}
}

// find returns when the block of a chain at depth was removed last, false if that is not
// remembered. A removal counts if it begins with this block, or if it spans the block and
// ends with a block of the chain too.
func (r *removals) find(t *Trail, depth, group int) (at uint32, ok bool) {
	key := t.key(depth)
	for i := range r.ring {
		e := &r.ring[r.newest(i)]
		if e.blocks == 0 {
			break
		}
		if e.group != uint16(group) || t.until > 0 && e.at > t.until {
			continue
		}
		if e.first == key {
			return e.at, true
		}
		if e.blocks < 2 {
			continue
		}
		first, known := t.depths()[e.first]
		last := first + int(e.blocks) - 1
		if known && first < depth && depth <= last && last < len(t.Keys) && t.key(last) == e.last {
			return e.at, true
		}
	}
	return 0, false
}

// newest returns the position of the ith removal, from the newest back.
func (r *removals) newest(i int) int { return (r.next - 1 - i + len(r.ring)) % len(r.ring) }

// key returns the key at a depth as the index keeps it.
func (t *Trail) key(depth int) uint64 { return hashtable.KeyOf(uint64(t.Keys[depth])) }

// depths returns the depths of the keys.
func (t *Trail) depths() map[uint64]int {
	if t.at == nil {
		t.at = make(map[uint64]int, len(t.Keys))
		for i := range t.Keys {
			t.at[t.key(i)] = i
		}
	}
	return t.at
}
