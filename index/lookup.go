package index

import (
	"math/bits"

	"warmroute/prefixhash"
)

// scratch is the working memory of one lookup, kept by its reader.
type scratch struct {
	found Found
	beside

	spaces *map[Scope]*space // where scope was found as space
	scope  Scope
	space  *space
}

// Lookup appends one Match for each holder it knows something of: how far each
// holds the prompt with these keys. It has no effect on what the index says,
// takes no lock, allocates nothing but room in dst, and waits for nobody. An
// unknown scope, no keys, or an empty scheme match nothing.
func (x *Index) Lookup(dst []Match, s Scope, keys []prefixhash.Key) []Match {
	r := x.epochs.enter() // before the map is read: Close waits for us
	defer r.leave()
	x.find(r, &r.found, s, keys)
	return r.found.AppendTo(dst)
}

// Find is Lookup into f, which can be read without a Match for each holder being
// written.
func (x *Index) Find(f *Found, s Scope, keys []prefixhash.Key) {
	r := x.epochs.enter()
	defer r.leave()
	x.find(r, f, s, keys)
}

func (x *Index) find(r *reader, f *Found, s Scope, keys []prefixhash.Key) {
	spaces := x.spaces.Load()
	if spaces != r.spaces || s != r.scope { // mostly the same as the last time: hashing a scope costs more than comparing it
		r.spaces, r.scope, r.space = spaces, s, (*spaces)[s]
	}
	if r.space == nil || len(keys) == 0 || s.Scheme == "" {
		f.reset(x, 0)
		return
	}
	r.space.lookup(r, f, keys)
}

func (sp *space) lookup(r *reader, f *Found, keys []prefixhash.Key) {
	d := sp.d
	f.reset(d.x, int(d.seating.words.Load()))
	sp.search(f, keys)
	f.ids = *d.seating.ids.Load() // after the sets were read: it has all their seats
	for i := range f.words {
		for w := d.hybrid.load(i) & d.seating.live.load(i); w != 0; w &= w - 1 {
			f.hybrid = append(f.hybrid, d.seating.id(i<<6+bits.TrailingZeros64(w)))
		}
	}
	if sp.hasBeside() {
		sp.lookupBeside(r, f, keys)
	}
}

// search goes from stem to stem and finds where each holder's blocks end. It
// relies on sets shrinking along a chain, and on keys being chained: what is
// equal at one place is equal before it.
func (sp *space) search(f *Found, keys []prefixhash.Key) {
	d, p := sp.d, 0
	for p < len(keys) {
		id := uint32(sp.heads.get(keyOf(uint64(keys[p]))) & valSet)
		if id == 0 {
			break
		}
		set, levels, n := d.stems.at(id).read(keys[p:])
		if n == 0 {
			break
		}
		if p > 0 {
			if !f.keep(&d.sets, set, int32(p)) {
				return
			}
		} else if !f.begin(d, set) {
			return
		}
		for i := 0; levels != nil; i++ {
			end := levelAt(levels, i).end
			if end >= n {
				break
			}
			if !f.keep(&d.sets, levelAt(levels, i+1).set, int32(p+end)) {
				return
			}
		}
		p += n
	}
	f.finish(int32(p))
}

// read returns how many blocks of a prompt from a stem's first on the stem has,
// who holds the first of them, and its levels when it has several.
func (st *stem) read(keys []prefixhash.Key) (set setID, levels *uint64, n int) {
	for {
		s := st.state.Load()
		if stateBlocks(s) == 0 {
			return 0, nil, 0
		}
		n = keysBefore(st.array(stateBlocks(s)), keys)
		set, levels = stateSet(s), nil
		if s&stateLevels != 0 {
			if levels = st.levels.Load(); levels == nil {
				continue // the state has changed
			}
			set = levelAt(levels, 0).set
		}
		if sameLife(st.state.Load(), s) {
			return set, levels, n
		}
	}
}
