package index

import (
	"math/bits"
	"slices"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
)

// scratch is the working memory of one lookup, kept by its reader.
type scratch struct {
	found Found
	path  []stretch
	group groupScratch
	beside

	spaces *map[Scope]*space // where scope was found as space
	scope  Scope
	space  *space
}

// enter announces a lookup, and returns its working memory.
func (x *Index) enter() (*epoch.Reader, *scratch) {
	reader := x.clock.Enter()
	r, ok := reader.Local.(*scratch)
	if !ok {
		r = new(scratch)
		reader.Local = r
	}
	return reader, r
}

// Lookup appends one Match for each holder it knows something of: how far each
// holds the prompt with these keys. It has no effect on what the index says,
// takes no lock, allocates nothing but room in dst, and waits for nobody. An
// unknown scope, no keys, or an empty scheme match nothing.
func (x *Index) Lookup(dst []Match, s Scope, keys []prefixhash.Key) []Match {
	reader, r := x.enter() // before the map is read: Close waits for us
	defer reader.Leave()
	x.find(r, &r.found, &s, keys)
	return r.found.AppendTo(dst)
}

// Find is Lookup into f, which can be read without a Match for each holder being
// written.
func (x *Index) Find(f *Found, s Scope, keys []prefixhash.Key) {
	reader, r := x.enter()
	defer reader.Leave()
	x.find(r, f, &s, keys)
}

func (x *Index) find(r *scratch, f *Found, s *Scope, keys []prefixhash.Key) {
	spaces := x.spaces.Load()
	if spaces != r.spaces || *s != r.scope { // mostly the same as the last time: hashing a scope costs more than comparing it
		r.spaces, r.scope, r.space = spaces, *s, (*spaces)[*s]
	}
	if r.space == nil || len(keys) == 0 || s.Scheme == "" {
		f.reset(x, 0)
		return
	}
	r.space.lookup(r, f, keys)
}

func (sp *space) lookup(r *scratch, f *Found, keys []prefixhash.Key) {
	d := sp.d
	f.reset(d.x, int(d.slots.Words()))
	sp.search(r, f, keys)
	f.ids = d.slots.Holders() // after the sets were read: it has all their slots
	for i := range f.words {
		for w := d.hybrid.Load(i) & d.slots.Live.Load(i); w != 0; w &= w - 1 {
			f.hybrid = append(f.hybrid, HolderID(d.slots.Holder(i<<6+bits.TrailingZeros64(w))))
		}
	}
	if sp.hasBeside() {
		sp.lookupBeside(r, f, keys)
	}
}

// stretch is the blocks that a prompt and a stem have in common.
type stretch struct {
	depth  int32 // blocks of the prompt before them
	n      int32
	set    holderset.ID // who holds the first
	levels *uint64      // when they have several
}

// search finds where each holder's blocks end. It relies on sets shrinking along
// a chain, and on keys being chained: where two are equal, so is all before them.
// So behind the first stem it jumps to the last marked block that is there, looks
// up which stems lead to it, and compares keys only behind it.
func (sp *space) search(r *scratch, f *Found, keys []prefixhash.Key) {
	sp.trace(r, keys)
	sp.credit(r, f)
}

// trace fills r.path with the stems that a prompt goes through, as far as they
// have it.
func (sp *space) trace(r *scratch, keys []prefixhash.Key) {
	if !sp.follow(r, keys, true) {
		sp.follow(r, keys, false)
	}
}

// credit finds where each holder's blocks end along r.path.
func (sp *space) credit(r *scratch, f *Found) {
	for i := range r.path {
		one := &r.path[i]
		if i == 0 && !f.begin(sp.d, one.set) || i > 0 && !f.keep(&sp.d.sets, one.set, one.depth) {
			return
		}
		for k := 0; one.levels != nil; k++ {
			end := int32(levelAt(one.levels, k).end)
			if end >= one.n {
				break
			}
			if !f.keep(&sp.d.sets, levelAt(one.levels, k+1).set, one.depth+end) {
				return
			}
		}
	}
	if n := len(r.path); n > 0 {
		f.finish(r.path[n-1].depth + r.path[n-1].n)
	}
}

// follow is trace, with jumps or from stem to stem only. Where it may jump and
// says false, the mark had gone or was another's.
func (sp *space) follow(r *scratch, keys []prefixhash.Key, jump bool) bool {
	d, p, every := sp.d, 0, sp.d.x.o.markEvery
	r.path = r.path[:0]
	for p < len(keys) {
		var at pos
		if p > 0 && jump { // more than one stem: there may be many
			if _, likely := sp.heads.View().Next(hashtable.KeyOf(uint64(keys[p])), hashtable.Position{}); likely == 0 {
				break
			}
			jump = false
			at = sp.jump(keys, every, p/every)
		}
		if at != 0 {
			st := d.stems.at(at.stem())
			if p = int(st.depth); p+at.off() >= len(keys) || !r.climb(&d.stems, st.parent) {
				return false
			}
		} else if at = d.stems.find(&sp.heads, hashtable.KeyOf(uint64(keys[p]))); at == 0 {
			break
		}
		st, off := d.stems.at(at.stem()), at.off()
		one := st.read(off, every, keys[p:])
		if one.n <= int32(off) { // while it has the block, what leads to it stays
			return off == 0
		}
		one.depth = int32(p)
		r.path = append(r.path, one)
		p += int(one.n)
	}
	return true
}

// jump returns the place of the last marked block of a prompt that is there,
// behind the first lo marks, or 0.
func (sp *space) jump(keys []prefixhash.Key, every, lo int) (mark pos) {
	key := func(i int) uint64 { return hashtable.KeyOf(uint64(keys[i*every-1])) }
	marks := sp.marks.View()
	for hi := len(keys) / every; lo < hi; {
		d, from := hi-lo, lo
		n := min(fan, d)
		for i := 1; i <= n; i++ { // their cache misses overlap
			marks.Touch(key(from + d*i/n))
		}
		for i := 1; i <= n; i++ {
			at := from + d*i/n
			_, likely := marks.Next(key(at), hashtable.Position{})
			if likely == 0 {
				hi = at - 1
				break
			}
			lo, mark = at, pos(likely)
		}
	}
	return mark
}

// climb fills r.path with the stems that lead to a block, the first one first.
func (r *scratch) climb(s *stems, to pos) bool {
	r.path = r.path[:0]
	for to != 0 {
		st := s.at(to.stem())
		one, n := st.view(), to.off()+1
		if stateBlocks(one.state) < n || one.levels == nil && one.state&stateLevels != 0 {
			return false
		}
		r.path = append(r.path, stretch{int32(st.depth), int32(n), one.set, one.levels})
		to = st.parent
	}
	slices.Reverse(r.path)
	return true
}

// read returns what a stem has of keys, which begin where it does, and are known
// to be the stem's before an offset. The next mark, of one in every blocks, was not
// there: so far it looks first.
func (st *stem) read(off, every int, keys []prefixhash.Key) (one stretch) {
	for {
		v := st.view()
		n := stateBlocks(v.state)
		if n <= off {
			return stretch{}
		}
		if v.levels == nil && v.state&stateLevels != 0 {
			continue // the state has changed
		}
		array := st.array(n)
		if !sameLife(st.state.Load(), v.state) { // it may be the array of other blocks, and being written
			continue
		}
		end := off + keysBefore(array[off:min(n, off+every)], keys[off:])
		if end == off+every {
			end += keysBefore(array[end:], keys[end:])
		}
		return stretch{n: int32(end), set: v.set, levels: v.levels}
	}
}

// stemView is who holds what of a stem.
type stemView struct {
	state  uint64
	set    holderset.ID // the first level's
	levels *uint64
}

func (st *stem) view() stemView {
	v := stemView{state: st.state.Load()}
	v.set = stateSet(v.state)
	if v.state&stateLevels != 0 {
		if v.levels = st.levels.Load(); v.levels != nil {
			v.set = levelAt(v.levels, 0).set
		}
	}
	return v
}
