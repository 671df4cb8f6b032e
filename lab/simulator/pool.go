package simulator

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
