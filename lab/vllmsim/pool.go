package vllmsim

import "slices"

// block is one physical KV block. It is in the free queue exactly while refs is 0; it
// keeps its hash there, for later requests, until the pool reuses it.
type block struct {
	id         int // from 1: 0 is vLLM's null block
	refs       int
	hashed     bool
	hash       digest
	group      int    // of the hash
	prev, next *block // neighbours in the free queue
}

// cachedHash is a hash in one group: a prefix has the same hash in all groups.
type cachedHash struct {
	group int
	hash  digest
}

// pool is vLLM's BlockPool (vllm/v1/core/block_pool.py): the blocks, the order in which
// it reuses free ones, and the blocks of each hash. It is not safe for concurrent use.
type pool struct {
	all    []block
	free   int
	queue  block // sentinel: the pool reuses queue.next first, queue.prev last
	byHash map[cachedHash][]*block
	// frontUnhashed is 0.32's order: the pool reuses freed blocks without a hash first.
	// 0.21 appends every freed block at the end.
	frontUnhashed bool
	events        []event
}

// newPool returns a pool of n blocks. One of them is vLLM's null block, which take never
// returns.
func newPool(n int, frontUnhashed bool) *pool {
	p := &pool{all: make([]block, n-1), byHash: map[cachedHash][]*block{}, frontUnhashed: frontUnhashed}
	p.queue.prev, p.queue.next = &p.queue, &p.queue
	for i := range p.all {
		p.all[i].id = i + 1
		p.insertBefore(&p.queue, &p.all[i])
	}
	return p
}

func (p *pool) insertBefore(at, b *block) {
	b.prev, b.next = at.prev, at
	b.prev.next, at.prev = b, b
	p.free++
}

func (p *pool) unlink(b *block) {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
	p.free--
}

// cached returns a block of group with hash d: of several blocks the one cached first.
func (p *pool) cached(group int, d digest) *block {
	if bs := p.byHash[cachedHash{group, d}]; len(bs) > 0 {
		return bs[0]
	}
	return nil
}

// touch takes a reference on cached blocks, and removes free ones from the free queue.
func (p *pool) touch(blocks []*block) {
	for _, b := range blocks {
		if b == nil {
			continue
		}
		if b.refs == 0 {
			p.unlink(b)
		}
		b.refs++
	}
}

// take appends n free blocks to dst and evicts their hashes. The caller has checked that
// n blocks are free.
func (p *pool) take(dst []*block, n int) []*block {
	for range n {
		b := p.queue.next
		p.unlink(b)
		p.evict(b)
		b.refs = 1
		dst = append(dst, b)
	}
	return dst
}

func (p *pool) evict(b *block) {
	if !b.hashed {
		return
	}
	b.hashed = false
	key := cachedHash{b.group, b.hash}
	same := p.byHash[key]
	for i, x := range same {
		if x == b {
			same = append(same[:i], same[i+1:]...)
			break
		}
	}
	if len(same) == 0 {
		delete(p.byHash, key)
	} else {
		p.byHash[key] = same
	}
	p.events = append(p.events, event{kind: blockRemoved, group: b.group, hashes: []digest{b.hash}})
}

// hold caches b under d in group. It does not merge equal content: two sequences that
// compute the same block at once keep a block each.
func (p *pool) hold(b *block, group int, d digest) {
	b.group, b.hash, b.hashed = group, d, true
	key := cachedHash{group, d}
	p.byHash[key] = append(p.byHash[key], b)
}

// release drops one reference of each block, last block first, so that the pool evicts
// the tail of a prefix before its head.
func (p *pool) release(blocks []*block) {
	blocks = slices.Clone(blocks)
	slices.Reverse(blocks)
	p.drop(blocks)
}

// drop drops one reference of each block, in this order.
func (p *pool) drop(blocks []*block) {
	front := p.queue.next
	for _, b := range blocks {
		if b == nil {
			continue
		}
		if b.refs--; b.refs > 0 {
			continue
		}
		if p.frontUnhashed && !b.hashed {
			p.insertBefore(front, b)
		} else {
			p.insertBefore(&p.queue, b)
			if front == &p.queue {
				front = b // the queue was empty: hashed blocks stay behind unhashed ones
			}
		}
	}
}

// reset drops every hash. It fails while any block is in use, as vLLM does.
func (p *pool) reset() bool {
	if p.free != len(p.all) {
		return false
	}
	for i := range p.all {
		p.all[i].hashed = false
	}
	clear(p.byHash)
	p.events = append(p.events, event{kind: allBlocksCleared})
	return true
}

// usage returns the share of blocks in use, 0 to 1.
func (p *pool) usage() float64 { return 1 - float64(p.free)/float64(len(p.all)) }
