package simulator

// page is the tokens that a replica allocates at once: vLLM's block.
const page = 16

// cache is a replica's KV cache, after vLLM's BlockPool (vllm/v1/core/block_pool.py). Running
// sequences hold pages. The pages of a block of the trace are one node; a node that nobody
// holds keeps its block until its pages are needed, in the order of its release. Pages without
// a block are taken first.
//
// Two sequences that compute the same block at once have a node each, as in vLLM. What the
// cache publishes is the difference between two steps, not each copy.
type cache struct {
	page   int // tokens
	pages  int
	free   int // pages that a request can take: the spare ones, and the pages of nodes without a holder
	spare  int // without a block
	nodes  []node
	unused []int32
	known  int     // blocks of the trace; answers have the ids from here on
	at     []int32 // block → its first node; 0 = no node has the block
	shown  []bool  // block of the trace → published as stored
	events []int32 // blocks of the trace whose first node came or whose last one went
}

// node is a block's pages. Node 0 is the head of the list of those that nobody holds.
type node struct {
	prev, next int32
	refs       int32
	pages      int32
	block      int32 // -1 = not full yet, or no request can ask for it
	twin       int32 // next node with the same block; 0 = none
}

func newCache(blocks, block, capacity int) *cache {
	size := min(block, page)
	pages := capacity / size
	return &cache{page: size, pages: pages, free: pages, spare: pages, nodes: make([]node, 1), known: blocks, at: make([]int32, blocks), shown: make([]bool, blocks)}
}

// of returns the pages of tokens.
func (c *cache) of(tokens int) int { return (tokens + c.page - 1) / c.page }

func (c *cache) has(block int32) bool { return c.at[block] != 0 }

func (c *cache) match(blocks []int32) int {
	for i, b := range blocks {
		if !c.has(b) {
			return i
		}
	}
	return len(blocks)
}

// private returns a new id for a block that no other request can ask for.
func (c *cache) private() int32 {
	c.at = append(c.at, 0)
	return int32(len(c.at) - 1)
}

// hold takes a reference on a block's node.
func (c *cache) hold(block int32) int32 {
	at := c.at[block]
	if n := &c.nodes[at]; n.refs == 0 {
		c.unlink(at)
		c.free -= int(n.pages)
	}
	c.nodes[at].refs++
	return at
}

// take makes a node, without pages yet.
func (c *cache) take() int32 {
	at := int32(len(c.nodes))
	if k := len(c.unused); k > 0 {
		at, c.unused = c.unused[k-1], c.unused[:k-1]
	} else {
		c.nodes = append(c.nodes, node{})
	}
	c.nodes[at] = node{refs: 1, block: -1}
	return at
}

// claim takes free pages; the caller has checked that there are so many.
func (c *cache) claim(pages int) {
	for c.spare < pages {
		at := c.nodes[0].next
		c.unlink(at)
		c.forget(at)
		c.spare += int(c.nodes[at].pages)
		c.unused = append(c.unused, at)
	}
	c.spare -= pages
	c.free -= pages
}

// store makes a full node's block visible to others.
func (c *cache) store(at, block int32) {
	c.nodes[at].block = block
	last := c.at[block]
	if last == 0 {
		c.at[block] = at
		c.changed(block)
		return
	}
	for c.nodes[last].twin != 0 {
		last = c.nodes[last].twin
	}
	c.nodes[last].twin = at
}

// forget drops a node's block.
func (c *cache) forget(at int32) {
	n := &c.nodes[at]
	if n.block < 0 {
		return
	}
	to := &c.at[n.block]
	for *to != at {
		to = &c.nodes[*to].twin
	}
	*to = n.twin
	if c.at[n.block] == 0 {
		c.changed(n.block)
	}
	n.block, n.twin = -1, 0
}

func (c *cache) changed(block int32) {
	if int(block) < c.known {
		c.events = append(c.events, block)
	}
}

// drop gives back a reference on a node of which full pages are computed. The cache keeps
// them until it needs them.
func (c *cache) drop(at int32, full int) {
	n := &c.nodes[at]
	if n.refs--; n.refs > 0 {
		return
	}
	c.free += int(n.pages)
	if n.block < 0 {
		full = min(full, int(n.pages))
		c.spare += int(n.pages) - full
		if n.pages = int32(full); full == 0 {
			c.unused = append(c.unused, at)
			return
		}
	}
	c.link(at)
}

// link puts a node at the end of the list: its pages are taken last.
func (c *cache) link(at int32) {
	last := c.nodes[0].prev
	c.nodes[at].prev, c.nodes[at].next = last, 0
	c.nodes[last].next, c.nodes[0].prev = at, at
}

func (c *cache) unlink(at int32) {
	n := &c.nodes[at]
	c.nodes[n.prev].next, c.nodes[n.next].prev = n.next, n.prev
}

// publish returns the blocks that came and went since the last call.
func (c *cache) publish() (stored, removed []int32) {
	for _, b := range c.events {
		switch has := c.has(b); {
		case has && !c.shown[b]:
			stored = append(stored, b)
		case !has && c.shown[b]:
			removed = append(removed, b)
		}
		c.shown[b] = c.has(b)
	}
	c.events = c.events[:0]
	return stored, removed
}
