package index

import (
	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hybrid"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// scratch is the working memory of one lookup, kept by its reader.
type scratch struct {
	found Found
	path  []radix.Stretch
	overlay

	hybrid    hybrid.Lookup
	narrowing hybrid.Narrowing
	prompt    promptLookup
	depths    Found // of a probe

	asked, home keyspaceMemo // the keyspaces that callers ask for, and of full attention
}

// keyspaceMemo is the keyspace of the last scope, mostly also of the next: hashing a scope
// costs more than comparing it.
type keyspaceMemo struct {
	all      *map[Scope]*keyspace
	scope    Scope
	keyspace *keyspace
}

func (m *keyspaceMemo) of(x *Index, s *Scope) *keyspace {
	if all := x.keyspaces.Load(); all != m.all || *s != m.scope {
		m.all, m.scope, m.keyspace = all, *s, (*all)[*s]
	}
	return m.keyspace
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

// Lookup appends one Match for each holder that has a part of the prompt with these keys.
// It changes nothing, takes no lock, allocates only to grow dst, and does not wait. An
// unknown scope, no keys, or an empty scheme match nothing.
func (x *Index) Lookup(dst []Match, s Scope, keys []prefixhash.Key) []Match {
	reader, r := x.enter() // before the map is read: Close waits for this reader
	defer reader.Leave()
	x.find(r, &r.found, &s, keys)
	return r.found.AppendTo(dst)
}

// Find is Lookup into f. A caller can read f without a Match for each holder being written.
func (x *Index) Find(f *Found, s Scope, keys []prefixhash.Key) {
	reader, r := x.enter()
	defer reader.Leave()
	x.find(r, f, &s, keys)
}

func (x *Index) find(r *scratch, f *Found, s *Scope, keys []prefixhash.Key) {
	r.asked.of(x, s).lookup(r, f, keys, -1)
}

// lookup finds the holders of keys. With the length of the prompt in tokens, which is not below 0,
// it finds those whose groups decide with their hits.
func (ks *keyspace) lookup(r *scratch, f *Found, keys []prefixhash.Key, tokens int) {
	if ks == nil || len(keys) == 0 || ks.scope.Scheme == "" {
		f.reset(0)
		return
	}
	sh := ks.sh
	f.reset(sh.slots.Words())
	ks.search(r, f, keys)
	f.ids = sh.slots.Holders() // after the sets were read: it has all slots of the sets
	more := ks.hasOverlay()
	if tokens >= 0 {
		ks.narrow(r, f, tokens, !more)
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
