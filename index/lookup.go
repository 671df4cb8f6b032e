package index

import (
	"math/bits"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// scratch is the working memory of one lookup, kept by its reader.
type scratch struct {
	found Found
	path  []radix.Stretch
	group groupScratch
	overlay

	keyspaces *map[Scope]*keyspace // where scope was found as keyspace
	scope     Scope
	keyspace  *keyspace
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

// Lookup appends one Match for each holder that has a part of the prompt with these
// keys: how far it holds it. It changes nothing, takes no lock, allocates nothing but
// room in dst, and does not wait. An unknown scope, no keys, or an empty scheme
// match nothing.
func (x *Index) Lookup(dst []Match, s Scope, keys []prefixhash.Key) []Match {
	reader, r := x.enter() // before the map is read: Close waits for us
	defer reader.Leave()
	x.find(r, &r.found, &s, keys, -1)
	return r.found.AppendTo(dst)
}

// Find is Lookup into f, which can be read without a Match for each holder being
// written.
func (x *Index) Find(f *Found, s Scope, keys []prefixhash.Key) {
	reader, r := x.enter()
	defer reader.Leave()
	x.find(r, f, &s, keys, -1)
}

// find is Find. With the length of the prompt in tokens, holders whose groups
// decide are found with what they hit.
func (x *Index) find(r *scratch, f *Found, s *Scope, keys []prefixhash.Key, tokens int) {
	keyspaces := x.keyspaces.Load()
	if keyspaces != r.keyspaces || *s != r.scope { // mostly the same as the last time: hashing a scope costs more than comparing it
		r.keyspaces, r.scope, r.keyspace = keyspaces, *s, (*keyspaces)[*s]
	}
	if r.keyspace == nil || len(keys) == 0 || s.Scheme == "" {
		f.reset(x, 0)
		return
	}
	r.keyspace.lookup(r, f, keys, tokens)
}

func (ks *keyspace) lookup(r *scratch, f *Found, keys []prefixhash.Key, tokens int) {
	sh := ks.sh
	f.reset(sh.x, sh.slots.Words())
	if f.view = byKeys; tokens >= 0 {
		f.view = byPrompt
	}
	ks.search(r, f, keys)
	f.ids = sh.slots.Holders() // after the sets were read: it has all their slots
	hybrid := &sh.hybrid[f.view]
	for i := range f.words {
		for w := hybrid.Load(i) & sh.slots.Live.Load(i); w != 0; w &= w - 1 {
			f.hybrid = append(f.hybrid, HolderID(sh.slots.Holder(i<<6+bits.TrailingZeros64(w))))
		}
	}
	more := ks.hasOverlay()
	if tokens >= 0 {
		ks.narrow(r, f, keys, tokens, !more)
	}
	if more {
		ks.lookupOverlay(r, f, keys)
		if tokens >= 0 {
			ks.narrowList(f, tokens)
		}
	}
}

// search finds where each holder's blocks end.
func (ks *keyspace) search(r *scratch, f *Found, keys []prefixhash.Key) {
	r.path = ks.tree.Trace(r.path, keys)
	ks.depths(r.path, f)
}

// depths finds where each holder's blocks end along a path: sets shrink along it.
func (ks *keyspace) depths(path []radix.Stretch, f *Found) {
	sets := &ks.sh.sets
	for i := range path {
		one := &path[i]
		if i == 0 && !f.begin(ks.sh, one.Set()) || i > 0 && !f.keep(sets, one.Set(), one.Depth) {
			return
		}
		for k := 0; ; k++ {
			depth, set, ok := one.Change(k)
			if !ok {
				break
			}
			if !f.keep(sets, set, depth) {
				return
			}
		}
	}
	if n := len(path); n > 0 {
		f.finish(path[n-1].Depth + path[n-1].Len)
	}
}
