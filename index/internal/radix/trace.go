package radix

import (
	"slices"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// Stretch is the blocks that a prompt and a node have in common. It has four fields:
// the compiler keeps no more in registers.
type Stretch struct {
	Depth int32 // blocks of the prompt before them
	Len   int32
	of    uint64  // the node's number << 32 | the set
	runs  *uint64 // when they have several sets
}

// Set returns the holders of the first block.
func (s *Stretch) Set() holderset.ID { return holderset.ID(s.of) }

// Node returns the node's number.
func (s *Stretch) Node() uint32 { return uint32(s.of >> 32) }

// Change returns the depth at which a stretch's set changes for the kth time, from
// 0, and the new set, or false if it does not. A writer may change the run
// meanwhile, so its end is read once.
func (s *Stretch) Change(k int) (depth int32, set holderset.ID, ok bool) {
	if s.runs == nil {
		return 0, 0, false
	}
	end := int32(runAt(s.runs, k).End)
	if end >= s.Len {
		return 0, 0, false
	}
	return s.Depth + end, runAt(s.runs, k+1).Set, true
}

// Trace fills path with the nodes that a prompt goes through, as far as they have
// it. It expects keys to be chained: if two are equal, so are all before them. So
// behind the first node it jumps to the prompt's last checkpoint in the tree, looks
// up which nodes lead to it, and compares keys only behind it. Made-up blocks can
// repeat keys behind other keys, so Trace takes no path that is not proven.
func (t *Tree) Trace(path []Stretch, keys []prefixhash.Key) []Stretch {
	path, ok := t.trace(path[:0], keys)
	if !ok {
		path = t.walk(path[:0], keys)
	}
	return path
}

// trace is Trace, but fails if a checkpoint is gone or another prompt's, or a path is
// not proven.
//
// A path is proven if it has the prompt's keys on both sides of each block with which
// its set changes, and at its end. A holder without made-up blocks has the path up to
// one of these, so the blocks before are the prompt's, and the holder lacks the next.
func (t *Tree) trace(path []Stretch, keys []prefixhash.Key) (_ []Stretch, ok bool) {
	n, p, before := t.nodes, 0, Place(0)
	for visited := 0; p < len(keys); visited++ {
		at, key := Place(0), hashtable.KeyOf(uint64(keys[p]))
		if visited == 1 { // more than one node: there may be many
			if _, likely := t.heads.View().Next(headOf(before, key), hashtable.Position{}); likely == 0 {
				break
			}
			at = t.lastCheckpoint(keys, p/n.every)
		}
		jump := at != 0
		if jump {
			nd := n.at(at.Node())
			if p = int(nd.depth); p+at.Offset() >= len(keys) || nd.mark != t.markOf(keys, p) {
				return path, false
			}
			if path, ok = t.climb(path[:0], nd.parent, keys); !ok {
				return path, false
			}
		} else if at = t.Head(before, key); at == 0 {
			break
		}
		nd, off := n.at(at.Node()), at.Offset()
		s := nd.read(off, n.every, keys[p:])
		if s.Len <= int32(off) { // while the node has the block, the nodes that lead to it stay
			return path, !jump
		}
		s.Depth = int32(p)
		s.of |= uint64(at.Node()) << 32
		if s.runs != nil && !t.proves(&s, keys) {
			return path, false
		}
		path = append(path, s)
		p += int(s.Len)
		before = At(at.Node(), int(s.Len)-1)
	}
	return path, true
}

// markOf returns the mark of a prompt's block.
func (t *Tree) markOf(keys []prefixhash.Key, depth int) uint32 {
	if depth == 0 {
		return t.mark(0, uint64(keys[0]))
	}
	pair := keys[depth-1:][:2]
	return t.mark(uint64(pair[0]), uint64(pair[1]))
}

// proves reports whether a stretch has the prompt's keys where its set changes.
func (t *Tree) proves(s *Stretch, keys []prefixhash.Key) bool {
	for k := 0; ; k++ {
		r := runAt(s.runs, k)
		if r.End >= int(s.Len) {
			return true
		}
		if pair := keys[int(s.Depth)+r.End-1:][:2]; r.mark != t.mark(uint64(pair[0]), uint64(pair[1])) {
			return false
		}
	}
}

// walk is Trace from node to node that compares each key.
func (t *Tree) walk(path []Stretch, keys []prefixhash.Key) []Stretch {
	before := Place(0)
	for p := 0; p < len(keys); {
		at := t.Head(before, hashtable.KeyOf(uint64(keys[p])))
		if at == 0 {
			break
		}
		s := t.nodes.at(at.Node()).read(0, 0, keys[p:])
		if s.Len == 0 {
			break
		}
		s.Depth = int32(p)
		s.of |= uint64(at.Node()) << 32
		path = append(path, s)
		p += int(s.Len)
		before = At(at.Node(), int(s.Len)-1)
	}
	return path
}

// lastCheckpoint returns the place of a prompt's last checkpoint in the tree behind
// the first lo blocks, or 0.
func (t *Tree) lastCheckpoint(keys []prefixhash.Key, lo int) (last Place) {
	v, every := t.checkpoints.View(), t.nodes.every
	key := func(i int) uint64 { return hashtable.KeyOf(uint64(keys[i*every-1])) }
	for hi := len(keys) / every; lo < hi; {
		d, from := hi-lo, lo
		n := min(fan, d)
		for i := 1; i <= n; i++ { // their cache misses overlap
			v.Touch(key(from + d*i/n))
		}
		for i := 1; i <= n; i++ {
			at := from + d*i/n
			_, likely := v.Next(key(at), hashtable.Position{})
			if likely == 0 {
				hi = at - 1
				break
			}
			lo, last = at, Place(likely)
		}
	}
	return last
}

// climb appends the nodes that lead to a block, the first one first. It fails if they
// are not proven.
func (t *Tree) climb(path []Stretch, to Place, keys []prefixhash.Key) (_ []Stretch, ok bool) {
	for to != 0 {
		nd := t.nodes.at(to.Node())
		v, len := nd.view(), to.Offset()+1
		if v.void() || nd.mark != t.markOf(keys, int(nd.depth)) {
			return path, false
		}
		s := Stretch{int32(nd.depth), int32(len), uint64(to.Node())<<32 | uint64(v.set), v.runs}
		if s.runs != nil && !t.proves(&s, keys) {
			return path, false
		}
		path = append(path, s)
		to = nd.parent
	}
	slices.Reverse(path)
	return path, true
}

// read returns the stretch of a node that has keys. keys begin with the node, and
// are known to be the node's before off. The tree lacks the next checkpoint, of one
// in every blocks, so read compares the keys up to there first. If every is 0, it
// compares each key. The last key of the stretch is the node's.
func (nd *node) read(off, every int, keys []prefixhash.Key) Stretch {
	for {
		v := nd.view()
		n := lenOf(v.state)
		if n <= off {
			return Stretch{}
		}
		if v.void() {
			continue
		}
		array := nd.array(n)
		if versionOf(nd.state.Load()) != versionOf(v.state) { // the array may be another node's, and being written
			continue
		}
		end := off
		if every > 0 {
			if end += commonKeys(array[off:min(n, off+every)], keys[off:]); end == off+every {
				end += commonKeys(array[end:], keys[end:])
			}
		}
		if every == 0 || end > off && array[end-1] != uint64(keys[end-1]) {
			end = equalKeys(array, keys)
		}
		return Stretch{Len: int32(end), of: uint64(v.set), runs: v.runs}
	}
}

// view is the state of a node's holders.
type view struct {
	state uint64
	set   holderset.ID // the first run's
	runs  *uint64
}

func (nd *node) view() view {
	v := view{state: nd.state.Load()}
	v.set = setOf(v.state)
	if v.state&stateRuns != 0 {
		if v.runs = nd.runs.Load(); v.runs != nil {
			v.set = runAt(v.runs, 0).Set
		}
	}
	return v
}

// void reports whether the state has changed since it was read.
func (v *view) void() bool { return v.runs == nil && v.state&stateRuns != 0 }
