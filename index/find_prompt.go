package index

import (
	"slices"

	"warmroute/index/internal/hybrid"
	"warmroute/prefixhash"
)

// FindPrompt is Find for a prompt that can return its length and its other chains: it finds
// holders with several cache groups with their hits (Match.Grouped). keys are the prompt's
// in the scope, as for Find.
func (x *Index) FindPrompt(f *Found, s Scope, keys []prefixhash.Key, p Prompt) {
	m := x.modelAt(s.modelKey())
	x.findPrompt(f, &s, keys, p, m)
	if m != nil && m.Sights() != 0 {
		x.findOtherwise(f, s, p, m)
	}
}

// findPrompt finds the holders of keys in a scope of the model m, which is nil if the index does not know it.
func (x *Index) findPrompt(f *Found, s *Scope, keys []prefixhash.Key, p Prompt, m *hybrid.Model) {
	reader, r := x.enter()
	defer reader.Leave()
	if m == nil || p == nil {
		x.find(r, f, s, keys)
		return
	}
	v := r.promptLookup(x, s, keys)
	v.f = f
	r.hybrid.Find(m, v.ask(p), v)
	v.end()
}

// promptLookup is the index as one lookup of package hybrid sees it: its hybrid.Index.
type promptLookup struct {
	x        *Index
	r        *scratch
	f        *Found // takes the answers; nil if there are none
	scope    *Scope
	query    hybrid.Query
	asked    *keyspace // the tables of scope
	searched *keyspace
}

// promptLookup prepares the reader's promptLookup for keys in a scope.
func (r *scratch) promptLookup(x *Index, s *Scope, keys []prefixhash.Key) *promptLookup {
	v := &r.prompt
	v.x, v.r, v.asked = x, r, r.asked.of(x, s)
	v.scope = &r.asked.scope
	v.query.Keys = keys
	return v
}

// ask returns the query for a prompt.
func (v *promptLookup) ask(p Prompt) *hybrid.Query {
	q := &v.query
	q.Prompt, q.Tokens, q.Asked, q.Linked = p, p.Tokens(), v.scope.home(), v.scope.Scheme == SchemeTokens
	return q
}

// Search implements hybrid.Index.
func (v *promptLookup) Search(group int, hits bool) int {
	ks, tokens := v.asked, -1
	if group != v.scope.Group {
		scope := *v.scope
		scope.Group = group
		ks = v.r.home.of(v.x, &scope)
	}
	if hits {
		tokens = v.query.Tokens
	}
	v.searched = ks
	ks.lookup(v.r, v.f, v.query.Keys, tokens)
	return v.f.Len()
}

// Probe implements hybrid.Index.
func (v *promptLookup) Probe(p *hybrid.Probe) {
	scope := *v.scope
	scope.Group, scope.BlockSize, scope.Scheme = p.Home.Group, p.Home.Block, SchemeTokens
	ks := v.r.home.of(v.x, &scope)
	if ks == nil {
		return
	}
	f := &v.r.depths
	f.reset(ks.sh.slots.Words())
	f.raw = true
	ks.search(v.r, f, p.Keys)
	copy(f.full, f.ends)
	ks.narrow(v.r, f, p.Tokens, true)
	for seat, m := range p.Members {
		if m == nil {
			continue
		}
		slot, ok := ks.sh.slots.Of(m.ID)
		if !ok || slot>>6 >= f.words || f.first[slot>>6]>>(slot&63)&1 == 0 {
			continue
		}
		if p.Held[seat] = f.full[slot]; f.decided[slot>>6]>>(slot&63)&1 != 0 {
			p.Hit[seat] = f.ends[slot]
		}
	}
}

// Answer implements hybrid.Index.
func (v *promptLookup) Answer(m *hybrid.Member, a hybrid.Answer) {
	f, id := v.f, HolderID(m.ID)
	blocks := int32(0)
	if v.scope.BlockSize > 0 {
		blocks = a.Hit / int32(v.scope.BlockSize)
	}
	match := Match{ID: id, Blocks: blocks, Lower: blocks, Storage: blocks, Grouped: true, Hit: a.Hit, Full: a.Full}
	if f.listed {
		if i := slices.IndexFunc(f.list, func(o Match) bool { return o.ID == id }); i >= 0 {
			f.list[i] = match
		} else {
			f.list = append(f.list, match)
		}
		return
	}
	if v.searched != nil {
		if slot, ok := v.searched.sh.slots.Of(m.ID); ok && slot>>6 < f.words {
			f.first[slot>>6] &^= 1 << (slot & 63)
		}
	}
	f.grouped = append(f.grouped, match)
}

// end drops the references to the lookup.
func (v *promptLookup) end() {
	v.f, v.query.Keys, v.query.Prompt = nil, nil, nil
}

// narrow replaces the blocks that members hold in f with the blocks that they hit of a
// prompt of so many tokens; with plain, also for members without other groups.
func (ks *keyspace) narrow(r *scratch, f *Found, tokens int, plain bool) {
	f.block = int32(ks.scope.BlockSize)
	clear(f.decided[:f.words])
	n := &r.narrowing
	n.Path, n.Tokens, n.Block, n.Plain = r.path, tokens, f.block, plain
	n.First, n.Depth, n.Held, n.Decided = f.first[:f.words], f.ends[:f.words<<6], f.full, f.decided
	ks.sh.hybrid.Narrow(n)
}

// narrowList narrows the holders without other groups in f's list.
func (ks *keyspace) narrowList(f *Found, tokens int) {
	home := ks.scope.home()
	for i := range f.list {
		m := &f.list[i]
		if m.Grouped {
			continue
		}
		member := ks.sh.x.memberOf(m.ID, ks.sh.key.modelKey())
		if member == nil {
			continue
		}
		if hit, ok := member.Hit(home, m.Blocks, tokens); ok {
			*m = Match{ID: m.ID, Blocks: hit, Lower: hit, Storage: hit, Grouped: true,
				Hit: hit * f.block, Full: m.Blocks * f.block}
		}
	}
}

// home returns the scope's group as a home of members.
func (s *Scope) home() hybrid.Home { return hybrid.Home{Group: s.Group, Block: s.BlockSize} }
