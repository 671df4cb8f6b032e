package index

import (
	"math/bits"
	"slices"

	"warmroute/index/internal/cachegroups"
	"warmroute/prefixhash"
)

// groupScratch is what a lookup of groups needs, kept by its reader.
type groupScratch struct {
	dense  Found // of the scopes of full attention
	chains memo[Chain, []prefixhash.Key]
	scopes memo[searched, depths]
	todo   []uint64
	known  []uint64 // holders, as bits
	decide []uint64
	doubt  []uint64 // slots of a shard, as bits, whose last end is not certain
	queued bool     // todo has such slots' members
	prober groupProber
	one    [1]*groupMember

	keyspace  *keyspace            // where was searched
	keyspaces *map[Scope]*keyspace // where scope was found as full
	scope     Scope
	full      *keyspace // of full attention
}

// searched is a scope of full attention, and whether what is hit there was looked
// for or what is held.
type searched struct {
	groupScope
	hits bool
}

// depths are, by member, how many blocks from the start are hit, and how many full
// attention holds.
type depths struct{ ends, whole []int32 }

// memo is a few values by key, in memory that is used again.
type memo[K comparable, V any] struct{ all []memoized[K, V] }

type memoized[K comparable, V any] struct {
	key   K
	value V
}

// at is a key's value. Where it is not known, it is what there is room in.
func (m *memo[K, V]) at(key K) (v *V, known bool) {
	for i := range m.all {
		if m.all[i].key == key {
			return &m.all[i].value, true
		}
	}
	n := len(m.all)
	if n == cap(m.all) {
		m.all = append(m.all, memoized[K, V]{})
	}
	m.all = m.all[:n+1]
	m.all[n].key = key
	return &m.all[n].value, false
}

// FindPrompt is Find for a prompt that can return its length and its other chains:
// holders with several cache groups are then found with what they really hit
// (Match.Grouped). keys are the prompt's in the scope, as for Find.
func (x *Index) FindPrompt(f *Found, s Scope, keys []prefixhash.Key, p Prompt) {
	reader, r := x.enter()
	defer reader.Leave()
	g := x.groupModelAt(modelKey{s.Tenant, s.Model})
	if g == nil || p == nil {
		x.find(r, f, &s, keys, -1)
		return
	}
	members, n := g.members.Load(), p.Tokens()
	whole := s.Scheme == SchemeTokens && s.BlockSize > 0 && max(0, n-1)/s.BlockSize <= len(keys) // keys cover the prompt
	here := -1
	if whole && slices.Contains(members.scopes, groupScope{s.Group, s.BlockSize, 0}) {
		here = n
	}
	q := &r.group
	q.reset(len(members.all))
	for _, c := range members.firsts {
		q.queueFirst(g, members.all, c, q.keys(c.chain, &s, keys, n, p), n)
	}
	x.find(r, f, &s, keys, here)
	q.keyspace = r.keyspace
	if here < 0 && whole && f.Len() == 0 && len(members.scopes) == 1 && members.scopes[0].block == s.BlockSize && members.scopes[0].ahead == 0 {
		here, s.Group = n, members.scopes[0].group // only there is anything
		if ks := q.keyspaceOf(x, &s); ks != nil && len(keys) > 0 {
			q.keyspace = ks
			ks.lookup(r, f, keys, here)
		}
	}
	for _, at := range members.scopes {
		same := here >= 0 && at == groupScope{s.Group, s.BlockSize, 0}
		if !same || members.whole && n/at.block > len(keys) {
			q.elsewhere(x, r, f, members.all, at, same, &s, keys, n, p)
		}
	}
	for _, c := range members.bounds {
		q.bound(x, r, f, members.all, c, &s, keys, n, p)
	}
	if len(members.ruled) > 0 || q.queued {
		for i, word := range members.ruled {
			q.todo[i] |= word
		}
		q.rule(x, r, g, f, members.all, &s, keys, n, p)
	}
	g.arrivals.lookup(x, f, &s, keys)
}

// queueFirst has the rule decide what the members of a class hit that hold a state behind
// the prompt's first block.
func (q *groupScratch) queueFirst(g *groupModel, members []*groupMember, c *groupClass, keys []prefixhash.Key, n int) {
	if len(keys) == 0 || n <= c.chain.Unit {
		return
	}
	set := g.table.get(mix(uint64(keys[0]), c.specs[1]))
	for i := range q.todo {
		for word := set.word(i); word != 0; word &= word - 1 {
			if slot := i<<6 + bits.TrailingZeros64(word); slot < len(members) && members[slot] != nil && members[slot].class.Load() == c {
				q.todo[i] |= 1 << (slot & 63)
				q.queued = true
			}
		}
	}
}

// keyspaceOf is the keyspace of a scope, which is mostly the one of the last time.
func (q *groupScratch) keyspaceOf(x *Index, s *Scope) *keyspace {
	if all := x.keyspaces.Load(); all != q.keyspaces || *s != q.scope {
		q.keyspaces, q.scope, q.full = all, *s, (*all)[*s]
	}
	return q.full
}

// elsewhere replaces matches of members whose full attention is in another scope,
// or who need more of the prompt's keys (whole).
func (q *groupScratch) elsewhere(x *Index, r *scratch, f *Found, members []*groupMember, at groupScope, whole bool, s *Scope, keys []prefixhash.Key, n int, p Prompt) {
	hits := q.ends(x, r, at, members, s, q.keys(Chain{Unit: at.block, Ahead: at.ahead}, s, keys, n, p), n)
	for slot, m := range members {
		if m == nil || q.todo[slot>>6]>>(slot&63)&1 != 0 {
			continue
		}
		if c := m.class.Load(); c != nil && c.method.kind != byRule && c.scope == at && (c.method.whole || !whole) {
			f.replace(x, q.keyspace, m, hits.ends[slot]*int32(at.block), hits.whole[slot]*int32(at.block), s.BlockSize)
		}
	}
}

// bound replaces the matches of the members of a class whose groups are not known
// with what they hit at least.
func (q *groupScratch) bound(x *Index, r *scratch, f *Found, members []*groupMember, c *groupClass, s *Scope, keys []prefixhash.Key, n int, p Prompt) {
	q.runsOf(x, r, members, c, s, keys, n, p)
	clear(q.known)
	for slot, m := range members {
		if m != nil && m.class.Load() == c {
			q.prober.slot = slot
			f.put(x, q.keyspace, m, int32(c.geometry.Hit(n, c.assumed, &q.prober)), 0, s.BlockSize)
			id := int(m.holder.id)
			for id>>6 >= len(q.known) {
				q.known = append(q.known, 0)
			}
			q.known[id>>6] |= 1 << (id & 63)
		}
	}
	f.hybrid = slices.DeleteFunc(f.hybrid, func(id HolderID) bool { return int(id>>6) < len(q.known) && q.known[id>>6]>>(id&63)&1 != 0 })
}

// runsOf readies the prober for members whose groups are not known.
func (q *groupScratch) runsOf(x *Index, r *scratch, members []*groupMember, c *groupClass, s *Scope, keys []prefixhash.Key, n int, p Prompt) {
	b := &q.prober
	b.class, b.runs = c, b.runs[:0]
	for i := range c.geometry.Specs {
		spec := &c.geometry.Specs[i]
		for _, group := range spec.Groups {
			ends := q.ends(x, r, groupScope{group, spec.Block, c.chain.Ahead}, members, s, q.keys(Chain{Unit: spec.Block, Ahead: c.chain.Ahead}, s, keys, n, p), -1).ends
			b.runs = append(b.runs, specRuns{i, ends})
		}
	}
}

// rule replaces the matches of the members in todo. All members of a class whose
// blocks are alike are answered at once: the rule runs for one of them, and all
// members for which every probe has the same result have the same hit.
func (q *groupScratch) rule(x *Index, r *scratch, g *groupModel, f *Found, members []*groupMember, s *Scope, keys []prefixhash.Key, n int, p Prompt) {
	for i := range q.todo {
		for q.todo[i] != 0 {
			slot := i<<6 + bits.TrailingZeros64(q.todo[i])
			var c *groupClass
			if slot < len(members) && members[slot] != nil {
				c = members[slot].class.Load()
			}
			if c == nil {
				q.todo[i] &^= 1 << (slot & 63)
				continue
			}
			hit := q.hit(x, r, g, members, slot, c, s, keys, n, p)
			whole := 0
			if c.run {
				whole = q.prober.run * c.scope.block
			}
			for w, agree := range q.prober.agree {
				q.todo[w] &^= agree
				for ; agree != 0; agree &= agree - 1 {
					f.replace(x, q.keyspace, members[w<<6+bits.TrailingZeros64(agree)], int32(hit), int32(whole), s.BlockSize)
				}
			}
		}
	}
}

func (q *groupScratch) reset(members int) {
	words := (members + 63) / 64
	if cap(q.todo) < words {
		q.todo, q.prober.agree = make([]uint64, words), make([]uint64, words)
	}
	q.todo, q.prober.agree = q.todo[:words], q.prober.agree[:words]
	clear(q.todo)
	q.queued = false
	q.chains.all, q.scopes.all = q.chains.all[:0], q.scopes.all[:0]
}

// hit runs the rule for a slot. The prober's agree is then who has the same.
func (q *groupScratch) hit(x *Index, r *scratch, g *groupModel, members []*groupMember, slot int, c *groupClass, s *Scope, keys []prefixhash.Key, n int, p Prompt) int {
	b := &q.prober
	b.table, b.class, b.slot = &g.table, c, slot
	b.keys = q.keys(c.chain, s, keys, n, p)
	var ends []int32
	if c.run {
		ends = q.ends(x, r, c.scope, members, s, b.keys, -1).ends
		b.run = int(ends[slot])
	}
	for w := range b.agree {
		b.agree[w] = 0
		for left := q.todo[w]; left != 0; left &= left - 1 {
			at := w<<6 + bits.TrailingZeros64(left)
			if at < len(members) && members[at] != nil && members[at].class.Load() == c && (ends == nil || ends[at] == ends[slot]) {
				b.agree[w] |= 1 << (at & 63)
			}
		}
	}
	return c.geometry.Hit(n, c.assumed, b)
}

// keys returns the prompt's keys on a chain.
func (q *groupScratch) keys(c Chain, s *Scope, keys []prefixhash.Key, n int, p Prompt) []prefixhash.Key {
	if c.Hash == nil && c.Ahead == 0 && c.Unit == s.BlockSize && n/c.Unit == len(keys) {
		return keys
	}
	k, known := q.chains.at(c)
	if !known {
		*k = p.AppendChain((*k)[:0], c)
	}
	return *k
}

// ends returns how many blocks of full attention the members hold; with the length
// of the prompt in tokens, how many they hit, too.
func (q *groupScratch) ends(x *Index, r *scratch, at groupScope, members []*groupMember, s *Scope, keys []prefixhash.Key, tokens int) depths {
	e, known := q.scopes.at(searched{at, tokens >= 0})
	if known {
		return *e
	}
	e.ends = slices.Grow(e.ends[:0], len(members))[:len(members)]
	e.whole = slices.Grow(e.whole[:0], len(members))[:len(members)]
	clear(e.ends)
	clear(e.whole)
	scope := *s
	scope.Group, scope.BlockSize, scope.Scheme = at.group, at.block, SchemeTokens
	ks := q.keyspaceOf(x, &scope)
	if ks == nil || len(keys) == 0 {
		return *e
	}
	f := &q.dense
	f.reset(x, ks.sh.slots.Words())
	if f.view = raw; tokens >= 0 {
		f.view = byPrompt
	}
	ks.search(r, f, keys)
	if tokens >= 0 {
		ks.narrow(r, f, keys, tokens, true)
	}
	for i, m := range members {
		if m == nil {
			continue
		}
		slot, ok := ks.sh.slots.Of(int32(m.holder.id))
		switch {
		case !ok || slot>>6 >= f.words || f.first[slot>>6]>>(slot&63)&1 == 0:
		case tokens < 0:
			e.ends[i], e.whole[i] = f.ends[slot], f.ends[slot]
		case f.narrowed[slot>>6]>>(slot&63)&1 != 0:
			e.ends[i], e.whole[i] = f.ends[slot], f.whole[slot]
		}
	}
	return *e
}

// replace makes f report what a member hits, and what its full attention holds, in tokens.
func (f *Found) replace(x *Index, ks *keyspace, m *groupMember, hit, whole int32, block int) {
	f.put(x, ks, m, hit, whole, block)
	if i := slices.Index(f.hybrid, m.holder.id); i >= 0 {
		f.hybrid = slices.Delete(f.hybrid, i, i+1)
	}
}

// put is replace for a member that is not among those whose blocks prove nothing,
// or is taken from them by the caller.
func (f *Found) put(x *Index, ks *keyspace, m *groupMember, hit, whole int32, block int) {
	id := m.holder.id
	blocks := int32(0)
	if block > 0 {
		blocks = hit / int32(block)
	}
	match := Match{ID: id, Blocks: blocks, Reported: blocks, Lower: blocks, Storage: blocks,
		Grouped: true, Hit: hit, Coming: hit, Whole: whole, Seen: x.newestBatch(id)}
	if f.listed {
		i := slices.IndexFunc(f.list, func(o Match) bool { return o.ID == id })
		if i < 0 {
			f.list = append(f.list, match)
			return
		}
		f.list[i] = match
		return
	}
	if ks != nil {
		if slot, ok := ks.sh.slots.Of(int32(id)); ok && slot>>6 < f.words {
			f.first[slot>>6] &^= 1 << (slot & 63)
		}
	}
	f.grouped = append(f.grouped, match)
}

// groupProber probes the blocks of one member, and keeps the members for which every
// probe had the same result.
type groupProber struct {
	table *groupTable
	class *groupClass
	keys  []prefixhash.Key
	run   int
	slot  int
	agree []uint64
	runs  []specRuns // byRuns
}

// specRuns is how many blocks of one group members hold from the start, by slot.
type specRuns struct {
	spec int
	ends []int32
}

// Held implements cachegroups.Prober.
func (b *groupProber) Held(spec, end int) bool {
	unit := b.class.chain.Unit
	at := end / unit
	if end%unit != 0 || at < 1 || at > len(b.keys) {
		return false
	}
	if spec == 0 && b.class.run {
		return end <= b.run*b.class.scope.block
	}
	set := b.table.get(mix(uint64(b.keys[at-1]), b.class.specs[spec]))
	has := set.has(b.slot)
	for w := range b.agree {
		if has {
			b.agree[w] &= set.word(w)
		} else {
			b.agree[w] &^= set.word(w)
		}
	}
	return has
}

// Run implements cachegroups.Prober.
func (b *groupProber) Run(spec, limit int) int {
	if b.class.method.kind == byRuns {
		for i := range b.runs {
			if b.runs[i].spec == spec {
				limit = min(limit, int(b.runs[i].ends[b.slot]))
			}
		}
		return limit
	}
	if spec == 0 && b.class.run {
		return min(b.run, limit)
	}
	block := b.class.geometry.Specs[spec].Block
	for k := range limit {
		if !b.Held(spec, (k+1)*block) {
			return k
		}
	}
	return limit
}

// guessList is the assumptions about a member that compete.
type guessList struct {
	all []cachegroups.Assumed // the one in use first
}

func (m *groupMember) noteGuesses() {
	m.guessed.Store(&guessList{m.guesses.List(nil)})
}

// Guess is what each assumption about a holder's cache predicts for a prompt, to be
// given to Served with what the holder reports.
type Guess struct {
	list *guessList
	Hits []int32
}

// Guess fills g with what a holder will hit of a prompt by each assumption that is
// open. It takes no lock. There is nothing in it when nothing is open.
func (x *Index) Guess(g *Guess, id HolderID, s Scope, keys []prefixhash.Key, p Prompt) {
	g.list, g.Hits = nil, g.Hits[:0]
	m := x.memberOf(id, modelKey{s.Tenant, s.Model})
	if m == nil || p == nil {
		return
	}
	c, list := m.alone.Load(), m.guessed.Load()
	if c == nil || list == nil || len(list.all) < 2 {
		return
	}
	reader, r := x.enter()
	defer reader.Leave()
	if inUse := m.class.Load(); inUse != nil {
		c = inUse
	}
	b := r.group.alone(x, r, m, c, &s, keys, p)
	g.list = list
	g.Hits = cachegroups.Predict(g.Hits, c.geometry, list.all, p.Tokens(), b)
}

// Served records what a holder reported of a prompt that was given to Guess: how many
// tokens it took from its cache.
func (x *Index) Served(h Holder, s Scope, g *Guess, reported int) {
	if g.list == nil {
		return
	}
	holder := x.known(h)
	if holder == nil {
		return
	}
	holder.mu.Lock()
	defer holder.mu.Unlock()
	for _, m := range holder.members {
		if m.key == (modelKey{s.Tenant, s.Model}) && m.guessed.Load() == g.list && m.guesses != nil {
			if was := m.guesses.Assumed(); m.guesses.Learn(g.Hits, reported) || was != m.guesses.Assumed() {
				m.join(m.guesses.Geometry())
			} else if c := m.alone.Load(); c != nil {
				m.updateTrust(c)
			}
		}
	}
}

func (x *Index) memberOf(id HolderID, k modelKey) *groupMember {
	h := x.byID(id)
	if h == nil {
		return nil
	}
	all := h.seenMembers.Load()
	if all == nil {
		return nil
	}
	for _, m := range *all {
		if m.key == k {
			return m
		}
	}
	return nil
}

// Trust returns how reliable the matches of a holder are. ok is false when
// nothing is known of its cache yet.
func (x *Index) Trust(id HolderID, tenant, model string) (t GroupTrust, ok bool) {
	if m := x.memberOf(id, modelKey{tenant, model}); m != nil {
		if p := m.trust.Load(); p != nil {
			return *p, true
		}
	}
	return GroupTrust{}, false
}
