package index

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"warmroute/prefixhash"
)

// scratch is the working memory of one lookup, kept by its reader.
type scratch struct {
	first []uint64 // seats that hold the first block
	alive []uint64 // those that still hold every block so far
	ends  []int32  // by seat: blocks without a gap; valid for seats in first
	stack []segment
	beside

	spaces *map[Scope]*space // where scope was found as space
	scope  Scope
	space  *space
}

// segment is a stretch of the prompt whose ends are known.
type segment struct {
	lo, hi     int32
	atLo, atHi setID
}

const (
	fan        = 8  // probes in a round: their cache misses overlap
	shortest   = 16 // segments up to this length are walked
	maxLadder  = 44 // 2 ends, log2 of a prompt's blocks, and 4 for the hint
	walkFactor = 24 // walk when a boundary is expected every walkFactor blocks: a search spends about fan × 3 levels on each
)

// Lookup appends one Match for each holder it knows something of: how far each
// holds the prompt with these keys. It has no effect on what the index says,
// takes no lock, allocates nothing but room in dst, and waits for nobody. An
// unknown scope, no keys, or an empty scheme match nothing.
func (x *Index) Lookup(dst []Match, s Scope, keys []prefixhash.Key) []Match {
	if len(keys) == 0 || s.Scheme == "" {
		return dst
	}
	r := x.epochs.enter() // before the map is read: Close waits for us
	defer r.leave()
	spaces := x.spaces.Load()
	if spaces != r.spaces || s != r.scope { // mostly the same as the last time: hashing a scope costs more than comparing it
		r.spaces, r.scope, r.space = spaces, s, (*spaces)[s]
	}
	if r.space != nil {
		dst = r.space.lookup(r, dst, keys)
	}
	return dst
}

func (sp *space) lookup(r *reader, dst []Match, keys []prefixhash.Key) []Match {
	d := sp.d
	words := int(d.seating.words.Load())
	r.grow(words)
	if !sp.search(r, words, keys) {
		clear(r.first[:words])
	}
	if sp.hasBeside() {
		return sp.lookupBeside(r, dst, words, keys)
	}
	return sp.emit(r, dst, words)
}

// emit appends the matches of a search.
func (sp *space) emit(r *reader, dst []Match, words int) []Match {
	d := sp.d
	ids := *d.seating.ids.Load()
	pages := *d.x.pages.Load()
	for i := range words {
		if w := r.first[i]; w != 0 {
			n := len(dst)
			dst = slices.Grow(dst, bits.OnesCount64(w))[:n+bits.OnesCount64(w)]
			partial, ids, ends := d.partial.load(i), ids[i<<6:], r.ends[i<<6:i<<6+64]
			for out := dst[n:]; w != 0 && len(out) > 0; w &= w - 1 {
				bit := bits.TrailingZeros64(w)
				id := HolderID(ids[bit].Load())
				end, m := ends[bit&63], &out[0]
				m.ID, m.Blocks, m.Reported, m.Lower, m.Storage, m.Learned = id, end, end, end, end, end
				m.Incomplete, m.HybridUnknown = partial>>bit&1 != 0, false
				m.Seen = pages[id/idsPerPage].seen[id%idsPerPage].Load()
				out = out[1:]
			}
		}
		for w := d.hybrid.load(i) & d.seating.live.load(i); w != 0; w &= w - 1 {
			id := HolderID(ids[i<<6+bits.TrailingZeros64(w)].Load())
			dst = append(dst, Match{ID: id, HybridUnknown: true, Seen: d.x.seen(id)})
		}
	}
	return dst
}

func (r *reader) grow(words int) {
	if len(r.first) < words {
		n := max(words, 2*len(r.first))
		r.first, r.alive, r.ends = make([]uint64, n), make([]uint64, n), make([]int32, n*64)
	}
	if r.stack == nil {
		r.stack = make([]segment, 0, 256)
	}
}

// get is the set of a key on GPU, without gaps before it.
func (sp *space) get(k prefixhash.Key) setID { return setID(sp.gpu.get(keyOf(uint64(k))) & valSet) }

// search finds where each holder's blocks end. It relies on gpu's order: along
// a chain sets only shrink, so equal sets at two places mean equal sets between
// them. It first probes both ends and a ladder of growing distances, then looks
// closer only where neighbouring probes differ. false: nobody has the first block.
func (sp *space) search(r *reader, words int, keys []prefixhash.Key) bool {
	n := len(keys)
	was := sp.d.x.hintFor(keys)
	var at [maxLadder]int32
	m := ladder(&at, n, was)
	sink := uint64(0)
	for _, p := range at[:m] {
		sink += sp.gpu.touch(uint64(keys[p]))
	}
	r.sink = sink
	first := sp.get(keys[0])
	if first == 0 || !sp.begin(r, words, first) {
		return false
	}
	stack := r.stack[:0]
	if n > 1 {
		var ids [maxLadder]setID
		ids[0] = first
		e := 0
		for e+1 < m && ids[e] != 0 {
			e++
			ids[e] = sp.get(keys[at[e]])
		}
		for ; e > 0; e-- {
			if ids[e] != ids[e-1] {
				stack = append(stack, segment{at[e-1], at[e], ids[e-1], ids[e]})
			}
		}
	}
	firstLost := int32(n)
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if s.hi-s.lo > 1 && !sp.dense(r, words, s) {
			stack = sp.split(r, stack, s, keys)
			continue
		}
		end, any := sp.walk(r, words, s, keys)
		if end > 0 && firstLost == int32(n) {
			firstLost = end
		}
		if !any {
			r.stack = stack
			sp.d.x.remember(keys, was, hint{firstLost, int32(n)})
			return true
		}
	}
	r.stack = stack
	sp.endAlive(r, words, int32(n))
	sp.d.x.remember(keys, was, hint{firstLost, int32(n)})
	return true
}

// ladder fills at with the first places to probe, rising: both ends, and both
// sides of the places a hint names or, without one, 1, 3, 7, ….
func ladder(at *[maxLadder]int32, n int, h hint) int {
	m := 1 // at[0] is 0
	add := func(p int) {
		if p < n && int32(p) > at[m-1] {
			at[m] = int32(p)
			m++
		}
	}
	if h.blocks > 0 {
		add(int(h.lost) - 1)
		add(int(h.lost))
		add(int(h.blocks) - 1)
		add(int(h.blocks))
	} else {
		for p := 1; p < n-1; p = 2*p + 1 {
			add(p)
		}
	}
	add(n - 1)
	return m
}

// begin makes first and alive the holders of the first block.
func (sp *space) begin(r *reader, words int, first setID) bool {
	d := sp.d
	any := uint64(0)
	clear(r.first[:words])
	if first < firstSet {
		if seat := int(first) - 1; seat>>6 < words {
			r.first[seat>>6] = 1 << (seat & 63)
		}
	} else {
		set := d.sets.words(first)
		for i := range min(words, len(set)) {
			r.first[i] = atomic.LoadUint64(&set[i])
		}
	}
	for i := range words {
		r.first[i] &= d.seating.live.load(i) &^ d.hidden.load(i)
		r.alive[i] = r.first[i]
		any |= r.first[i]
	}
	return any != 0
}

// dense says whether walking the segment is cheaper than searching in it.
func (sp *space) dense(r *reader, words int, s segment) bool {
	n := s.hi - s.lo
	if n <= shortest {
		return true
	}
	lost := 0
	switch {
	case s.atHi == 0:
		for _, w := range r.alive[:words] {
			lost += bits.OnesCount64(w)
		}
	case s.atHi < firstSet:
		for _, w := range r.alive[:words] {
			lost += bits.OnesCount64(w)
		}
		lost--
	default:
		set := sp.d.sets.words(s.atHi)
		for i, w := range r.alive[:words] {
			if i < len(set) {
				w &^= atomic.LoadUint64(&set[i])
			}
			lost += bits.OnesCount64(w)
		}
	}
	return lost*walkFactor >= int(n)
}

// split probes a segment at fan - 1 places and pushes the parts that differ at
// their ends, the leftmost on top.
func (sp *space) split(r *reader, stack []segment, s segment, keys []prefixhash.Key) []segment {
	d := s.hi - s.lo
	var at [fan + 1]int32
	var ids [fan + 1]setID
	sink := uint64(0)
	for i := range int32(fan + 1) {
		at[i] = s.lo + d*i/fan
		sink += sp.gpu.touch(uint64(keys[at[i]]))
	}
	r.sink = sink
	ids[0], ids[fan] = s.atLo, s.atHi
	last := fan
	for i := 1; i < fan; i++ {
		ids[i] = sp.get(keys[at[i]])
		if ids[i] == 0 { // behind the first absent block all are absent
			last = i
			break
		}
	}
	for i := last; i > 0; i-- {
		if ids[i] != ids[i-1] {
			stack = append(stack, segment{at[i-1], at[i], ids[i-1], ids[i]})
		}
	}
	return stack
}

// walk goes through a segment block by block and returns where the first
// holder was lost (0: none) and whether any is left.
func (sp *space) walk(r *reader, words int, s segment, keys []prefixhash.Key) (lost int32, any bool) {
	cur := s.atLo
	for p := s.lo + 1; p <= s.hi; p++ {
		id := s.atHi
		if p < s.hi {
			id = sp.get(keys[p])
		}
		if id == cur {
			continue
		}
		if lost == 0 {
			lost = p
		}
		if !sp.drop(r, words, p, id) {
			return lost, false
		}
		cur = id
	}
	return lost, true
}

// drop ends the holders that are not in set id at position p, and says whether
// others are left.
func (sp *space) drop(r *reader, words int, p int32, id setID) bool {
	if id == 0 {
		sp.endAlive(r, words, p)
		return false
	}
	var set []uint64
	var one [1]uint64
	offset := 0
	if id < firstSet {
		offset = int(id-1) >> 6
		one[0] = 1 << ((id - 1) & 63)
		set = one[:]
	} else {
		set = sp.d.sets.words(id)
	}
	any := uint64(0)
	for i, w := range r.alive[:words] {
		left := uint64(0)
		if k := i - offset; k >= 0 && k < len(set) {
			left = w & atomic.LoadUint64(&set[k])
		}
		for gone := w &^ left; gone != 0; gone &= gone - 1 {
			r.ends[i<<6+bits.TrailingZeros64(gone)] = p
		}
		r.alive[i] = left
		any |= left
	}
	return any != 0
}

func (sp *space) endAlive(r *reader, words int, p int32) {
	for i, w := range r.alive[:words] {
		for ; w != 0; w &= w - 1 {
			r.ends[i<<6+bits.TrailingZeros64(w)] = p
		}
	}
}
