package radix

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// grove drives nodes with random operations, and keeps beside them which slot has which
// blocks.
type grove struct {
	*forest
	rng    *rand.Rand
	blocks []groveBlock
	salts  []uint64       // by slot: its hashes are the keys with these bits changed
	has    []map[int]bool // by slot: blocks; a slot with a block has the blocks before it
	tick   uint16
	ticks  map[uint32]uint16 // by node, of the last store
	swept  map[int]uint32    // ended slots that have lost some blocks, perhaps before others: the node to go on with
}

type groveBlock struct {
	parent int // -1: it begins prompts
	key    uint64
	kids   []int
}

// newGrove makes blocks in chains, of which one block in so many begins another.
func newGrove(t *testing.T, seed uint64, blocks, parts, every int, salts ...uint64) *grove {
	g := &grove{forest: newForest(t, every, len(salts)), rng: rand.New(rand.NewPCG(seed, 1)), salts: salts, ticks: map[uint32]uint16{}, swept: map[int]uint32{}}
	for range salts {
		g.has = append(g.has, map[int]bool{})
	}
	for i := range blocks {
		b := groveBlock{parent: i - 1, key: g.rng.Uint64() | 1}
		if i > 0 && g.rng.IntN(parts) == 0 {
			b.parent = g.rng.IntN(i+1) - 1
		}
		if g.blocks = append(g.blocks, b); b.parent >= 0 {
			g.blocks[b.parent].kids = append(g.blocks[b.parent].kids, i)
		}
	}
	return g
}

func (g *grove) hash(slot, block int) uint64 { return g.blocks[block].key ^ g.salts[slot] }

func (g *grove) keysAndHashes(slot int, blocks []int) (keys, hashes []uint64) {
	for _, b := range blocks {
		keys, hashes = append(keys, g.blocks[b].key), append(hashes, g.hash(slot, b))
	}
	return keys, hashes
}

// path returns a block and all blocks before it, the first one first.
func (g *grove) path(block int) (path []int) {
	for ; block >= 0; block = g.blocks[block].parent {
		path = append(path, block)
	}
	slices.Reverse(path)
	return path
}

// behind returns a block and all blocks of a slot that follow it.
func (g *grove) behind(slot, block int) []int {
	all := []int{block}
	for i := 0; i < len(all); i++ {
		for _, kid := range g.blocks[all[i]].kids {
			if g.has[slot][kid] {
				all = append(all, kid)
			}
		}
	}
	return all
}

// pick returns any of a slot's blocks, -1 if the slot has none.
func (g *grove) pick(slot int) int {
	all := slices.Sorted(maps.Keys(g.has[slot]))
	if len(all) == 0 {
		return -1
	}
	return all[g.rng.IntN(len(all))]
}

func (g *grove) step() {
	slot := g.rng.IntN(len(g.held))
	g.tick += uint16(g.rng.IntN(3))
	switch op := g.rng.IntN(100); {
	case g.ended[slot]:
		g.sweep(slot)
	case op < 55:
		g.store(slot)
	case op < 70:
		g.remove(slot)
	case op < 85:
		g.removeEnd(slot)
	case op < 92:
		g.evict()
	case op < 94:
		g.ended[slot] = true
	case op < 96:
		keys, hashes := g.keysAndHashes(slot, []int{0})
		g.tree.Cancel(g.tree.New(keys, hashes))
	default:
		g.nodes.Trim()
		g.held[slot].Trim()
	}
}

// store stores a stretch of blocks behind a block that the slot has.
func (g *grove) store(slot int) {
	from := g.pick(slot)
	if g.rng.IntN(4) == 0 {
		from = -1
	}
	kids := g.kids(from)
	var path []int
	for n := 1 + g.rng.IntN(50); n > 0 && len(kids) > 0; n-- {
		next := kids[g.rng.IntN(len(kids))]
		path, kids = append(path, next), g.blocks[next].kids
	}
	at := Place(0)
	if from >= 0 {
		at = g.held[slot].Find(g.hash(slot, from))
	}
	for len(path) > 0 {
		p, n := g.storeSome(slot, at, path)
		for _, b := range path[:n] {
			g.has[slot][b] = true
		}
		at, path = p+Place(n-1), path[n:]
	}
}

// kids returns the blocks that follow a block, and for -1 the blocks that begin prompts.
func (g *grove) kids(block int) (kids []int) {
	if block >= 0 {
		return g.blocks[block].kids
	}
	for i, b := range g.blocks {
		if b.parent < 0 {
			kids = append(kids, i)
		}
	}
	return kids
}

// storeSome stores some of the blocks of a path that follows a place.
func (g *grove) storeSome(slot int, at Place, path []int) (p Place, n int) {
	keys, hashes := g.keysAndHashes(slot, path)
	head := g.tree.Head(at, keys[0])
	switch {
	case at != 0 && g.nodes.Has(at+1, keys[0]):
		return at + 1, g.join(slot, at+1, keys, hashes)
	case head != 0:
		if before := g.nodes.Before(head); before != at {
			g.t.Fatalf("the node behind %x follows %x", at, before)
		}
		return head, g.join(slot, head, keys, hashes)
	case at != 0 && g.nodes.IsEnd(at):
		p, n = at+1, 1+g.rng.IntN(len(keys))
		g.nodes.Reserve(p, keys, hashes) // more blocks than are appended
		g.forest.record(slot, p, hashes[:n])
		g.nodes.Append(p, n, slot, g.tick)
	default:
		p, n = g.beginHashed(slot, at, keys, hashes, g.tick), len(keys)
	}
	g.ticks[p.Node()] = g.tick
	return p, n
}

// join makes a slot a holder of blocks from a place on, as far as the node has them.
func (g *grove) join(slot int, p Place, keys, hashes []uint64) int {
	n := g.nodes.Common(p, keys)
	held := g.held[slot].Held(p.Node()) - p.Offset()
	if held > 0 {
		return min(n, held)
	}
	g.forest.record(slot, p, hashes[:n])
	if held < 0 || !g.held[slot].Add(p, n, g.tick) {
		g.t.Fatalf("%d blocks from %x on are not added: %d are held", n, p, held)
	}
	g.ticks[p.Node()] = g.tick
	return n
}

// remove removes a block and all blocks that the slot has behind it.
func (g *grove) remove(slot int) {
	block := g.pick(slot)
	if block < 0 {
		return
	}
	h := &g.held[slot]
	p := h.Find(g.hash(slot, block))
	from := map[uint32]int{p.Node(): p.Offset()}
	h.Follow(p.Node(), p.Offset(), from)
	var want, got []uint64
	for _, b := range g.behind(slot, block) {
		want = append(want, g.hash(slot, b))
		delete(g.has[slot], b)
	}
	h.Each(func(hash uint64, p Place) {
		if first, ok := from[p.Node()]; ok && p.Offset() >= first {
			got = append(got, hash)
		}
	})
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		g.t.Fatalf("%x are behind a block, want %x", got, want)
	}
	for id, first := range from {
		if held := h.Held(id); held <= first {
			g.t.Fatalf("of node %d, behind %d, slot %d has %d blocks", id, first, slot, held)
		}
	}
	h.Erase(got)
	g.leaveAll(slot, from)
}

// leaveAll removes a slot from the ends of nodes, in any order.
func (g *grove) leaveAll(slot int, from map[uint32]int) {
	ids := slices.Sorted(maps.Keys(from))
	g.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		if !g.held[slot].Leave(id, from[id]) {
			g.t.Fatal("too many different sets")
		}
	}
}

// removeEnd removes blocks from the last one of a slot's part of a node on.
func (g *grove) removeEnd(slot int) {
	block := g.pick(slot)
	for next := block; next >= 0; {
		block, next = next, -1
		for _, kid := range g.blocks[block].kids {
			if g.has[slot][kid] {
				next = kid
			}
		}
	}
	if block < 0 {
		return
	}
	path := g.path(block)
	slices.Reverse(path)
	path = path[:1+g.rng.IntN(len(path))]
	_, hashes := g.keysAndHashes(slot, path)
	h := &g.held[slot]
	p := h.Find(hashes[0])
	n := h.ForgetEnd(p, hashes)
	most := 0
	for most < len(path) && most <= p.Offset() && len(g.behind(slot, path[most])) == 1 {
		delete(g.has[slot], path[most])
		most++
	}
	for _, b := range path[n:max(n, most)] {
		g.has[slot][b] = true
	}
	if alike := len(slices.Compact(slices.Clone(g.salts))) == 1; n > most || alike && n != most {
		g.t.Fatalf("%d blocks are forgotten from an end on, want %d", n, most)
	}
	if n > 0 && !h.Leave(p.Node(), p.Offset()+1-n) {
		g.t.Fatal("too many different sets")
	}
}

// sweep removes some blocks of an ended holder, and after the last one gives the slot to another.
func (g *grove) sweep(slot int) {
	var ended holderset.Mask
	ended.Put(slot, true)
	at, ok := g.nodes.Clear(&ended, g.swept[slot], 1)
	if !ok {
		g.t.Fatal("too many different sets")
	}
	if g.swept[slot] = at; at > 0 {
		return
	}
	delete(g.swept, slot)
	g.held[slot].Discard()
	g.held[slot] = Holding{}
	g.held[slot].Init(&g.nodes, slot)
	clear(g.has[slot])
	delete(g.ended, slot)
}

// evict drops the end of an old node.
func (g *grove) evict() {
	except := uint32(g.rng.IntN(3))
	chosen := map[uint32]int{3: 0}
	id, end := g.tree.OldestEnd(g.tick, chosen, except)
	ages := map[uint32]uint16{}
	for other, nd := range g.nodes.each() {
		if floor := g.naiveFloor(other); floor < nd.len() && other != except && other != 3 {
			ages[other] = g.tick - g.ticks[other]
		}
	}
	if id == 0 {
		if len(ages) > 0 {
			g.t.Fatalf("no node has an end, but %v have", ages)
		}
		return
	}
	age, ok := ages[id]
	if !ok || end != g.naiveFloor(id) {
		g.t.Fatalf("node %d ends at %d, it is one of %v and has to end at %d", id, end, ages, g.naiveFloor(id))
	}
	for other, older := range ages {
		if older > age && len(ages) <= evictSample {
			g.t.Fatalf("node %d of age %d is the oldest, but %d is %d old", id, age, other, older)
		}
	}
	slots := map[int]bool{}
	if n := g.nodes.Behind(id, end, func(slot int) { slots[slot] = true }); n != g.nodes.BlocksOf(id)-end {
		g.t.Fatalf("%d blocks behind %d of %d", n, end, g.nodes.BlocksOf(id))
	}
	for slot := range g.held {
		if slots[slot] != (g.held[slot].Held(id) > end) {
			g.t.Fatalf("slot %d holds %d blocks of a node, behind %d: %v", slot, g.held[slot].Held(id), end, slots[slot])
		}
		g.forgetBehind(slot, id, end)
	}
}

// naiveFloor returns how many blocks of a node are before other nodes.
func (g *grove) naiveFloor(id uint32) (floor int) {
	for _, nd := range g.nodes.each() {
		if nd.parent != 0 && nd.parent.Node() == id {
			floor = max(floor, nd.parent.Offset()+1)
		}
	}
	return floor
}

// forgetBehind removes a slot's blocks of a node from an offset on. The hashes of an ended holder
// stay until they are swept.
func (g *grove) forgetBehind(slot int, id uint32, end int) {
	h := &g.held[slot]
	if !g.ended[slot] {
		var gone []uint64
		h.Each(func(hash uint64, p Place) {
			if p.Node() == id && p.Offset() >= end {
				gone = append(gone, hash)
			}
		})
		h.Erase(gone)
		for _, hash := range gone {
			delete(g.has[slot], slices.IndexFunc(g.blocks, func(b groveBlock) bool { return b.key == hash^g.salts[slot] }))
		}
	}
	if !h.Leave(id, end) {
		g.t.Fatal("too many different sets")
	}
}

// verify compares the nodes and holdings with the slots' blocks.
func (g *grove) verify() {
	g.t.Helper()
	if err := g.check(); err != nil && len(g.swept) == 0 {
		g.t.Fatal(err)
	}
	for slot := range g.held {
		if g.ended[slot] {
			continue
		}
		if n := g.held[slot].Len(); n != len(g.has[slot]) {
			g.t.Fatalf("slot %d has %d blocks, want %d", slot, n, len(g.has[slot]))
		}
		for b := range g.blocks {
			p := g.held[slot].Find(g.hash(slot, b))
			if (p != 0) != g.has[slot][b] || g.held[slot].Has(p, g.blocks[b].key) != g.has[slot][b] || p != 0 && g.nodes.Key(p) != g.blocks[b].key {
				g.t.Fatalf("slot %d finds block %d at %x, which it has: %v", slot, b, p, g.has[slot][b])
			}
			if parent := g.blocks[b].parent; p != 0 && parent >= 0 && g.nodes.Before(p) != g.held[slot].Find(g.hash(slot, parent)) {
				g.t.Fatalf("block %d at %x follows %x", b, p, g.nodes.Before(p))
			}
		}
	}
}

// prompt returns a path and its keys. The keys may go on where the path ends.
func (g *grove) prompt() (path []int, keys []prefixhash.Key) {
	path = g.path(g.rng.IntN(len(g.blocks)))
	for _, b := range path {
		keys = append(keys, prefixhash.Key(g.blocks[b].key))
	}
	for range g.rng.IntN(9) {
		keys = append(keys, prefixhash.Key(g.rng.Uint64()))
	}
	return path, keys
}

// depth returns how many blocks of a path a slot has.
func (g *grove) depth(slot int, path []int) (depth int) {
	for depth < len(path) && g.has[slot][path[depth]] {
		depth++
	}
	return depth
}

// verifyTrace compares how many blocks of a prompt each slot has.
func (g *grove) verifyTrace() {
	g.t.Helper()
	path, keys := g.prompt()
	sets := g.traced(keys)
	for slot := range g.held {
		if got, want := g.heldOf(sets, slot), g.depth(slot, path); got != want && !g.ended[slot] {
			g.t.Fatalf("slot %d has %d blocks of a prompt of %d, want %d", slot, got, len(keys), want)
		}
	}
}

// However chains part and slots hash blocks, the nodes have the slots' blocks, and lookups find
// them.
func TestModel(t *testing.T) {
	for name, c := range map[string]struct {
		blocks, parts, every int
		salts                []uint64
	}{
		"chains that part often":       {80, 5, 3, []uint64{0, 0, 0, 0}},
		"long chains":                  {400, 60, 4, []uint64{0, 0, 0}},
		"each block is a checkpoint":   {200, 20, 1, []uint64{0, 0, 0}},
		"hardly any checkpoint":        {200, 20, 64, []uint64{0, 0, 0}},
		"hashes are not keys":          {120, 8, 3, []uint64{1 << 40, 1 << 40}},
		"each slot has its own hashes": {120, 8, 5, []uint64{0, 1 << 40, 1 << 50, 1 << 40}},
		"one slot has its own hashes":  {60, 4, 2, []uint64{1 << 40, 0, 0, 0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				g := newGrove(t, seed, c.blocks, c.parts, c.every, c.salts...)
				for step := range 500 {
					g.step()
					if g.verifyTrace(); step%5 == 0 {
						g.verify()
					}
				}
			}
		})
	}
}
