package simulator

// cache is a replica's prefix cache: running requests pin their blocks, and the cache
// evicts other blocks in the order of their release. It releases a request's blocks tail
// first, so that it evicts tails first, as vLLM does.
type cache struct {
	block    int // tokens per block
	capacity int // tokens
	blocks   int32
	nodes    []node  // prompt blocks, the list's sentinel at [blocks], then outputs
	spare    []int32 // nodes of evicted outputs
	idle     int     // tokens that the cache can evict
	used     int     // tokens present or reserved
	pinned   int     // tokens of running requests

	// tailFirst evicts answers before their prompts, as vLLM does.
	tailFirst bool

	stored, removed []int32 // since they were last published
}

type node struct {
	prev, next int32
	refs       int32
	size       int32
	present    bool
}

func newCache(blocks, block, capacity int) *cache {
	c := &cache{block: block, capacity: capacity, blocks: int32(blocks), nodes: make([]node, blocks+1)}
	head := &c.nodes[blocks]
	head.prev, head.next = c.blocks, c.blocks
	for i := range blocks {
		c.nodes[i].size = int32(block)
	}
	return c
}

func (c *cache) match(blocks []int32) int {
	for i, b := range blocks {
		if !c.nodes[b].present {
			return i
		}
	}
	return len(blocks)
}

// reserve pins a prompt's blocks and room for its output, and returns the number of cached
// blocks; false if there is not enough room.
func (c *cache) reserve(r *Request) (cached int, ok bool) {
	cached = c.match(r.Blocks)
	waking := 0
	for _, b := range r.Blocks[:cached] {
		if c.nodes[b].refs == 0 {
			waking++
		}
	}
	tail := r.tail(c.block)
	if (len(r.Blocks)-cached)*c.block+tail > c.capacity-c.used+c.idle-waking*c.block {
		return 0, false
	}
	for _, b := range r.Blocks {
		n := &c.nodes[b]
		if n.refs == 0 {
			c.pinned += c.block
			if n.present {
				c.unlink(b)
			} else {
				c.evict(c.block)
				c.used += c.block
			}
		}
		c.nodes[b].refs++
	}
	c.evict(tail)
	c.used += tail
	c.pinned += tail
	return cached, true
}

// store makes blocks of a running request visible to others.
func (c *cache) store(blocks []int32) {
	for _, b := range blocks {
		if n := &c.nodes[b]; !n.present {
			n.present = true
			c.stored = append(c.stored, b)
		}
	}
}

// tail returns the tokens of a request behind its blocks: the answer, and the end of the
// prompt if the blocks are full ones alone.
func (r *Request) tail(block int) int { return r.Output + max(0, r.Input-len(r.Blocks)*block) }

// release unpins the blocks that reserve pinned. The output stays until it is evicted.
func (c *cache) release(r *Request) {
	tail := r.tail(c.block)
	c.pinned -= tail
	if c.tailFirst {
		c.keep(r.Answer, tail)
	}
	for i := len(r.Blocks) - 1; i >= 0; i-- {
		b := r.Blocks[i]
		n := &c.nodes[b]
		if n.refs--; n.refs > 0 {
			continue
		}
		c.pinned -= c.block
		if n.present {
			c.link(b)
		} else {
			c.used -= c.block
		}
	}
	if !c.tailFirst {
		c.keep(nil, tail)
	}
}

// keep leaves the tail of a request that has ended in the cache: its blocks that other
// prompts can use, and the rest as one node.
func (c *cache) keep(answer []int32, tail int) {
	shared := answer[:0:0]
	for _, b := range answer {
		if n := &c.nodes[b]; !n.present && n.refs == 0 && tail >= c.block {
			tail -= c.block
			shared = append(shared, b)
		}
	}
	if tail > 0 || len(answer) == 0 {
		c.linkRest(tail)
	}
	for i := len(shared) - 1; i >= 0; i-- {
		b := shared[i]
		c.nodes[b].present = true
		c.link(b)
	}
	c.stored = append(c.stored, shared...)
}

// linkRest adds a node of tokens that no prompt can use.
func (c *cache) linkRest(tokens int) {
	var out int32
	if k := len(c.spare); k > 0 {
		out, c.spare = c.spare[k-1], c.spare[:k-1]
	} else {
		c.nodes = append(c.nodes, node{})
		out = int32(len(c.nodes) - 1)
	}
	c.nodes[out] = node{size: int32(tokens), present: true}
	c.link(out)
}

// evict makes room for tokens.
func (c *cache) evict(tokens int) {
	for c.used+tokens > c.capacity {
		v := c.nodes[c.blocks].next
		if v == c.blocks {
			return
		}
		c.unlink(v)
		n := &c.nodes[v]
		n.present = false
		c.used -= int(n.size)
		if v > c.blocks {
			c.spare = append(c.spare, v)
		} else {
			c.removed = append(c.removed, v)
		}
	}
}

// link puts a node at the end of the list: the cache evicts it last.
func (c *cache) link(i int32) {
	last := c.nodes[c.blocks].prev
	c.nodes[i].prev, c.nodes[i].next = last, c.blocks
	c.nodes[last].next, c.nodes[c.blocks].prev = i, i
	c.idle += int(c.nodes[i].size)
}

func (c *cache) unlink(i int32) {
	n := &c.nodes[i]
	c.nodes[n.prev].next, c.nodes[n.next].prev = n.next, n.prev
	c.idle -= int(n.size)
}

// pool is one cache of all replicas, an upper bound. It evicts the least recently used
// blocks first, and without a capacity none.
type pool struct {
	block, capacity, used int
	present               []bool
	evicted               []int32 // since they were last published
	prev, next            []int32
	head                  int32
}

func newPool(blocks, block, capacity int) *pool {
	p := &pool{block: block, capacity: capacity, present: make([]bool, blocks),
		prev: make([]int32, blocks+1), next: make([]int32, blocks+1), head: int32(blocks)}
	p.prev[blocks], p.next[blocks] = p.head, p.head
	return p
}

func (p *pool) match(blocks []int32) int {
	for i, b := range blocks {
		if !p.present[b] {
			return i
		}
	}
	return len(blocks)
}

func (p *pool) unlink(b int32) { p.next[p.prev[b]], p.prev[p.next[b]] = p.next[b], p.prev[b] }

func (p *pool) link(b int32) {
	last := p.prev[p.head]
	p.prev[b], p.next[b] = last, p.head
	p.next[last], p.prev[p.head] = b, b
}

// touch makes blocks the most recently used, tails less than heads.
func (p *pool) touch(blocks []int32) {
	for i := len(blocks) - 1; i >= 0; i-- {
		p.unlink(blocks[i])
		p.link(blocks[i])
	}
}

func (p *pool) store(blocks []int32) {
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		if p.present[b] {
			p.unlink(b)
			p.link(b)
			continue
		}
		for p.capacity > 0 && p.used+p.block > p.capacity {
			v := p.next[p.head]
			p.unlink(v)
			p.present[v] = false
			p.evicted = append(p.evicted, v)
			p.used -= p.block
		}
		p.present[b] = true
		p.used += p.block
		p.link(b)
	}
}
