package radix

import (
	"slices"
	"testing"
	"unsafe"

	"warmroute/index/internal/holderset"
)

// Nodes take small arrays again that others of their size have left, the last one first. Large
// arrays go to the pool.
func TestArraysAreTakenAgain(t *testing.T) {
	f := newForest(t, 4, 1)
	a := &f.nodes.arrays
	for _, n := range []int{1, 8, 9, 100, 384} {
		first, words := a.take(n)
		second, _ := a.take(n)
		if first == second || a.words != 0 {
			t.Fatalf("%d words twice are %p and %p, with %d left", n, first, second, a.words)
		}
		a.put(first, words)
		a.put(second, words)
		a.put(nil, words)
		if a.words != 2*words {
			t.Errorf("two arrays of %d words are left, %d counted", words, a.words)
		}
		if other, _ := a.take(2 * words); other == first || other == second {
			t.Errorf("an array of %d words is taken for %d", words, 2*words)
		}
		if again, size := a.take(n); again != second || size != words || a.words != words {
			t.Errorf("%d words are %p, want %p; %d left", size, again, second, a.words)
		}
		if again, _ := a.take(words); again != first || a.words != 0 {
			t.Errorf("%d words are %p, want %p; %d left", words, again, first, a.words)
		}
	}
	large, words := a.take(385)
	if a.put(large, words); words != 512 || a.words != 0 {
		t.Errorf("of %d words %d are left, though the pool has them", words, a.words)
	}
}

// The arrays that are kept have a bound, and Trim gives them up.
func TestKeptArraysAreBounded(t *testing.T) {
	f := newForest(t, 4, 1)
	a := &f.nodes.arrays
	array := unsafe.SliceData(make([]uint64, 64))
	for range 2 * maxSpareWords / 64 {
		a.put(array, 64)
	}
	if a.words != maxSpareWords {
		t.Errorf("%d words are kept, want %d", a.words, maxSpareWords)
	}
	before := f.nodes.Bytes()
	f.nodes.Trim()
	if got := before - f.nodes.Bytes(); got != 8*maxSpareWords {
		t.Errorf("Trim gives %d bytes up, want %d", got, 8*maxSpareWords)
	}
	if again, _ := a.take(64); again == array {
		t.Error("an array that was given up is taken")
	}
}

// A node that grows gets room for a quarter more blocks, up to the most blocks of a node, and
// uses the room before its array is copied again.
func TestNodesGrowByAQuarter(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		f := newForest(t, 64, 1)
		keys := chain(0, MaxNode+1)
		hashes := keys
		if hashed {
			hashes = chain(1<<20, MaxNode+1)
		}
		p := f.beginHashed(0, 0, keys[:1], hashes[:1], 1)
		nd, copies := f.nodes.at(1), 0
		if f.nodes.retired.Len() != 0 {
			t.Error("a new node has left an array")
		}
		for n := 1; n < MaxNode; n++ {
			array, room := nd.keys.Load(), int(nd.capacity)
			if !f.nodes.IsEnd(p+Place(n-1)) || n > 1 && f.nodes.IsEnd(p+Place(n-2)) {
				t.Fatalf("a node of %d blocks ends elsewhere", n)
			}
			f.nodes.Reserve(p+Place(n), keys[n:n+1], hashes[n:n+1])
			f.held[0].Record(p+Place(n), hashes[n:n+1])
			f.nodes.Append(p+Place(n), 1, 0, 1)
			if nd.keys.Load() == array {
				continue
			}
			if copies++; n < room {
				t.Errorf("%d blocks are copied, with room for %d", n, room)
			}
			if c := int(nd.capacity); n >= 64 && (c < min(n+n/4, MaxNode) || c > 5*n/2) {
				t.Errorf("room for %d blocks where there are %d", c, n)
			}
		}
		if copies > 40 || f.nodes.IsEnd(p+MaxNode-1) {
			t.Errorf("%d copies of a node with room for more: %v", copies, f.nodes.IsEnd(p+MaxNode-1))
		}
		if nd.plain == hashed || !slices.Equal(nd.all(), keys[:MaxNode]) || !slices.Equal(nd.hashes(MaxNode), hashes[:MaxNode]) {
			t.Error("keys or hashes are other ones")
		}
	}
}

// Keys that a lookup may have seen stay as they are while the lookup runs, whatever becomes of
// their node, and the number of an ended node is not given again.
func TestLookupsKeepTheirKeys(t *testing.T) {
	f := newForest(t, 4, 1)
	keys := chain(0, 10)
	p := f.begin(0, 0, keys)
	reader := f.clock.Enter()
	seen := f.nodes.at(1).all()
	f.leave(0, 1, 5)
	f.extend(0, p+5, chain(100, 5))
	f.leave(0, 1, 7)
	f.extend(0, p+7, chain(200, 1))
	if !slices.Equal(seen, keys) {
		t.Errorf("keys %x, want %x", seen, keys)
	}
	grown := f.nodes.at(1).all()
	f.leave(0, 1, 0)
	for i := range 3 * nodesPerPage { // each node takes a number and gives it back
		if q := f.begin(0, 0, chain(1000*i+1000, 9)); q.Node() == 1 {
			t.Fatalf("node 1 is another's while a lookup may read it")
		} else {
			f.leave(0, q.Node(), 0)
		}
	}
	if !slices.Equal(seen, keys) || !slices.Equal(grown, slices.Concat(keys[:5], chain(100, 2), chain(200, 1))) {
		t.Errorf("keys %x and %x have become others", seen, grown)
	}
	reader.Leave()
}

// A node with room writes blocks behind its last one into the same array.
func TestBlocksBehindTheLastAreWrittenInPlace(t *testing.T) {
	f := newForest(t, 4, 1)
	p := f.begin(0, 0, chain(0, 8))
	f.extend(0, p+8, chain(8, 1)) // the node has room for 12 now
	array := f.nodes.at(1).keys.Load()
	f.extend(0, p+9, chain(9, 3))
	if f.nodes.at(1).keys.Load() != array {
		t.Error("an array with room was replaced")
	}
}

// Numbers of ended nodes are given again, so that churn makes few more nodes than there are at
// a time.
func TestNumbersAreGivenAgain(t *testing.T) {
	f := newForest(t, 4, 1)
	hashes := chain(1<<20, 20)
	for i := range 2000 {
		p := f.beginHashed(0, 0, chain(100*i, 20), hashes, 1)
		f.held[0].Erase(hashes)
		f.held[0].Leave(p.Node(), 0)
	}
	if f.nodes.made > 2*nodesPerPage+2 || f.nodes.Len() != 0 {
		t.Errorf("%d nodes were made, of which %d have blocks", f.nodes.made, f.nodes.Len())
	}
	_, words := f.nodes.arrays.take(40)
	f.nodes.Trim()
	for range 3 {
		f.nodes.reuse(retired{id: 1})
	}
	if f.nodes.arrays.words != 0 || words != 48 {
		t.Errorf("%d words are left by nodes without arrays", f.nodes.arrays.words)
	}
	f.nodes.free, f.nodes.made = nil, maxNodes
	if p := f.tree.New(hashes, hashes); p != 0 {
		t.Errorf("a node has number %d, of at most %d", p.Node(), maxNodes)
	}
}

// The number of a dropped tree is the next tree's.
func TestNumbersOfTrees(t *testing.T) {
	f := newForest(t, 4, 1)
	trees := []*Tree{&f.tree, new(Tree), new(Tree)}
	f.nodes.Add(trees[1], 1)
	f.nodes.Add(trees[2], 1)
	for _, dropped := range []int{0, 1, 2} {
		f.nodes.Drop(trees[dropped])
		f.nodes.Trim()
		next := new(Tree)
		if number := f.nodes.Add(next, 1); number != dropped {
			t.Errorf("the tree after number %d is number %d", dropped, number)
		}
	}
}

// OldestEnd compares some nodes at a time, going on where it stopped.
func TestEvictionsLookAtSome(t *testing.T) {
	f := newForest(t, 64, 1)
	for i := range 40 { // each node is older than the one before
		key := chain(10*i, 1)
		f.beginHashed(0, 0, key, key, uint16(100-i))
	}
	for _, want := range []uint32{evictSample, 2 * evictSample, 40} {
		if id, end := f.tree.OldestEnd(200, nil, 0); id != want || end != 0 {
			t.Errorf("node %d from %d on, want node %d", id, end, want)
		}
	}
}

// TestBytesOfNodes: a block takes a word for its key, and another for its hash where that differs; a
// run takes a word, and a node a cache line.
func TestBytesOfNodes(t *testing.T) {
	f := newForest(t, 4, 2)
	f.begin(0, 0, chain(0, 20))
	bytes := f.nodes.Bytes()
	for _, step := range []struct {
		what  string
		words func() int
	}{
		{"keys", func() int { return int(f.nodes.at(f.begin(0, 0, chain(100, 30)).Node()).capacity) }},
		{"keys and hashes", func() int {
			return 2 * int(f.nodes.at(f.beginHashed(0, 0, chain(200, 30), chain(300, 30), 1).Node()).capacity)
		}},
		{"two runs", func() int { f.add(1, At(1, 0), chain(0, 10)); return 2 }},
		{"a page of nodes", func() int {
			for i := range nodesPerPage {
				f.begin(0, 0, chain(400+i, 1))
			}
			return nodesPerPage * (8 + 8) // the smallest array has 8 words
		}},
	} {
		want := bytes + 8*step.words()
		if bytes = f.nodes.Bytes(); bytes != want {
			t.Errorf("%s: %d bytes, want %d", step.what, bytes, want)
		}
	}
	if n := f.nodes.Len(); n != 3+nodesPerPage {
		t.Errorf("%d nodes", n)
	}
}

// TestBytesOfIndexes: a hash that is not the node's takes two words, as a place behind which the holder
// goes on does; a hash of the node's and a checkpoint take one or more.
func TestBytesOfIndexes(t *testing.T) {
	f := newForest(t, 4, 2)
	keys := chain(0, 400)
	p := f.begin(0, 0, keys)
	if bytes := f.tree.Bytes(); bytes < 8*len(keys)/4 {
		t.Errorf("%d bytes of a tree", bytes)
	}
	f.record(1, p, chain(1000, len(keys)))
	if bytes := f.held[1].Bytes(); bytes < 16*len(keys) {
		t.Errorf("%d bytes of hashes that are not the nodes'", bytes)
	}
	for i := range keys {
		f.begin(0, p+Place(i), chain(2000+i, 1))
	}
	if bytes := f.held[0].Bytes(); bytes < 16*len(keys)+8*2*len(keys) {
		t.Errorf("%d bytes where nodes are behind each block", bytes)
	}
}

// TestAHashIsOfOneBlock: a holder's hash that it gave a block which others hash otherwise is not
// another block's too.
func TestAHashIsOfOneBlock(t *testing.T) {
	f := newForest(t, 4, 2)
	theirs := chain(100, 3)
	first, second := f.begin(0, 0, chain(0, 3)), f.begin(0, 0, theirs)
	f.record(1, first, theirs)
	if n := f.held[1].Record(second, theirs); n != 0 || f.held[1].Find(theirs[0]) != first {
		t.Errorf("%d hashes are of two blocks, the first of %x", n, f.held[1].Find(theirs[0]))
	}
}

// TestHashesOfBlocks: a block's hash is the holder's own, also where the block was stored by another
// one's.
func TestHashesOfBlocks(t *testing.T) {
	f := newForest(t, 4, 3)
	keys, theirs := chain(0, 5), chain(100, 3)
	p := f.begin(0, 0, keys)
	f.record(1, p, theirs)
	if !f.held[1].Add(p, len(theirs), 1) {
		t.Fatal("too many different sets")
	}
	f.held[0].Take(keys[3])
	for range 2 { // it changes nothing
		f.held[1].HashAt(p)
	}
	for off := range keys {
		for slot, hashes := range [][]uint64{{keys[0], keys[1], keys[2], 0, keys[4]}, theirs, nil} {
			hash, ok := f.held[slot].HashAt(p + Place(off))
			if want := off < len(hashes) && hashes[off] != 0; ok != want || want && hash != hashes[off] {
				t.Errorf("block %d of slot %d: %x, %v", off, slot, hash, ok)
			}
			if has := f.held[slot].Has(p+Place(off), keys[off]); has != (off < len(hashes)) {
				t.Errorf("slot %d has block %d: %v", slot, off, has)
			}
		}
	}
}

// TestEndedHoldersAreClearedInSteps: the blocks of ended holders go, a step for each node and each of
// their parts in it; others' stay.
func TestEndedHoldersAreClearedInSteps(t *testing.T) {
	f := newForest(t, 4, 2)
	f.begin(1, 0, chain(0, 2))
	f.begin(0, 0, chain(10, 2))
	f.add(1, f.begin(0, 0, chain(20, 2)), chain(20, 2))
	f.begin(0, 0, chain(30, 2))
	var mask holderset.Mask
	mask.Put(0, true)
	f.ended[0] = true
	for i, want := range []uint32{2, 3, 4, 0} {
		next, ok := f.nodes.Clear(&mask, []uint32{0, 2, 3, 4}[i], 1)
		if next != want || !ok {
			t.Errorf("it goes on at node %d, want %d (%v)", next, want, ok)
		}
	}
	if err := f.check(); err != nil || f.nodes.Len() != 2 || f.held[1].Held(3) != 2 {
		t.Errorf("%v, %d nodes", err, f.nodes.Len())
	}
}
