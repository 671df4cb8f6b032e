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
	chains []chainKeys
	scopes []scopeEnds
	todo   []uint64
	prober groupProber
	one    [1]*groupMember
}

// chainKeys is the prompt's keys on one chain.
type chainKeys struct {
	chain Chain
	keys  []prefixhash.Key
}

// scopeEnds is how many blocks of full attention each member holds from the
// start, in one scope.
type scopeEnds struct {
	scope groupScope
	ends  []int32
}

// FindPrompt is Find for a prompt whose length and other chains can be asked for:
// holders with several cache groups are then found with what they really hit
// (Match.Grouped). keys are the prompt's in the scope, as for Find.
func (x *Index) FindPrompt(f *Found, s Scope, keys []prefixhash.Key, p Prompt) {
	reader, r := x.enter()
	defer reader.Leave()
	x.find(r, f, &s, keys)
	if g := x.groupModelAt(modelKey{s.Tenant, s.Model}); g != nil && p != nil {
		g.lookup(x, r, f, &s, keys, p)
	}
}

// lookup adds the members' matches to f. All members of a class whose blocks look
// alike are answered at once: the rule runs for one of them, and whoever has the
// same answer to every question it asks has the same hit.
func (g *groupModel) lookup(x *Index, r *scratch, f *Found, s *Scope, keys []prefixhash.Key, p Prompt) {
	members := *g.members.Load()
	q := &r.group
	q.reset(len(members))
	any := false
	for seat, m := range members {
		if m != nil {
			q.todo[seat>>6] |= 1 << (seat & 63)
			any = true
		}
	}
	if !any {
		return
	}
	n := p.Tokens()
	for i := range q.todo {
		for q.todo[i] != 0 {
			seat := i<<6 + bits.TrailingZeros64(q.todo[i])
			c := members[seat].class.Load()
			if c == nil {
				q.todo[i] &^= 1 << (seat & 63)
				continue
			}
			hit := q.hit(x, r, g, members, seat, c, s, keys, n, p)
			for w, agree := range q.prober.agree {
				q.todo[w] &^= agree
				for ; agree != 0; agree &= agree - 1 {
					f.replace(x, r.keyspace, members[w<<6+bits.TrailingZeros64(agree)], int32(hit), s.BlockSize)
				}
			}
		}
	}
	g.claims.lookup(x.o.Now().UnixNano(), f, s, keys)
}

func (q *groupScratch) reset(members int) {
	words := (members + 63) / 64
	if cap(q.todo) < words {
		q.todo, q.prober.agree = make([]uint64, words), make([]uint64, words)
	}
	q.todo, q.prober.agree = q.todo[:words], q.prober.agree[:words]
	clear(q.todo)
	q.chains, q.scopes = q.chains[:0], q.scopes[:0]
}

// hit runs the rule for a seat. The prober's agree is then who has the same.
func (q *groupScratch) hit(x *Index, r *scratch, g *groupModel, members []*groupMember, seat int, c *groupClass, s *Scope, keys []prefixhash.Key, n int, p Prompt) int {
	b := &q.prober
	b.table, b.class, b.seat = &g.table, c, seat
	b.keys = q.keys(c.chain, s, keys, n, p)
	var ends []int32
	if c.run {
		ends = q.ends(x, r, c.scope, members, s, b.keys)
		b.run = int(ends[seat])
	}
	for w := range b.agree {
		b.agree[w] = 0
		for left := q.todo[w]; left != 0; left &= left - 1 {
			at := w<<6 + bits.TrailingZeros64(left)
			if members[at].class.Load() == c && (ends == nil || ends[at] == ends[seat]) {
				b.agree[w] |= 1 << (at & 63)
			}
		}
	}
	return c.geometry.Hit(n, c.assumed, b)
}

// keys returns the prompt's keys on a chain.
func (q *groupScratch) keys(c Chain, s *Scope, keys []prefixhash.Key, n int, p Prompt) []prefixhash.Key {
	if c.Hash == nil && c.Unit == s.BlockSize && n/c.Unit == len(keys) {
		return keys
	}
	for i := range q.chains {
		if q.chains[i].chain == c {
			return q.chains[i].keys
		}
	}
	if len(q.chains) < cap(q.chains) {
		q.chains = q.chains[:len(q.chains)+1]
	} else {
		q.chains = append(q.chains, chainKeys{})
	}
	k := &q.chains[len(q.chains)-1]
	k.chain = c
	k.keys = p.AppendChain(k.keys[:0], c)
	return k.keys
}

// ends returns how many blocks of full attention the members hold, by seat.
func (q *groupScratch) ends(x *Index, r *scratch, at groupScope, members []*groupMember, s *Scope, keys []prefixhash.Key) []int32 {
	for i := range q.scopes {
		if q.scopes[i].scope == at {
			return q.scopes[i].ends
		}
	}
	if len(q.scopes) < cap(q.scopes) {
		q.scopes = q.scopes[:len(q.scopes)+1]
	} else {
		q.scopes = append(q.scopes, scopeEnds{})
	}
	e := &q.scopes[len(q.scopes)-1]
	e.scope = at
	e.ends = slices.Grow(e.ends[:0], len(members))[:len(members)]
	clear(e.ends)
	scope := *s
	scope.Group, scope.BlockSize, scope.Scheme = at.group, at.block, SchemeTokens
	ks := (*x.keyspaces.Load())[scope]
	if ks == nil || len(keys) == 0 {
		return e.ends
	}
	f := &q.dense
	f.reset(x, ks.sh.slots.Words())
	ks.search(r, f, keys)
	for i, m := range members {
		if m == nil {
			continue
		}
		if seat, ok := ks.sh.slots.Of(int32(m.holder.id)); ok && seat>>6 < f.words && f.first[seat>>6]>>(seat&63)&1 != 0 {
			e.ends[i] = f.ends[seat]
		}
	}
	return e.ends
}

// replace makes f say what a member hits, instead of what its full attention holds.
func (f *Found) replace(x *Index, ks *keyspace, m *groupMember, hit int32, block int) {
	id := m.holder.id
	blocks := int32(0)
	if block > 0 {
		blocks = hit / int32(block)
	}
	match := Match{ID: id, Blocks: blocks, Reported: blocks, Lower: blocks, Storage: blocks,
		Grouped: true, Hit: hit, Coming: hit, Seen: x.seen(id)}
	if f.listed {
		i := slices.IndexFunc(f.list, func(o Match) bool { return o.ID == id })
		if i < 0 {
			f.list = append(f.list, match)
			return
		}
		if o := &f.list[i]; m.plainNow() && o.Blocks > o.Reported { // speculated behind what is reported
			match.Coming += (o.Blocks - o.Reported) * int32(block)
			match.Blocks += o.Blocks - o.Reported
		}
		f.list[i] = match
		return
	}
	if ks != nil {
		if seat, ok := ks.sh.slots.Of(int32(id)); ok && seat>>6 < f.words {
			f.first[seat>>6] &^= 1 << (seat & 63)
		}
	}
	if i := slices.Index(f.hybrid, id); i >= 0 {
		f.hybrid = slices.Delete(f.hybrid, i, i+1)
	}
	f.grouped = append(f.grouped, match)
}

// groupProber asks for the blocks of one seat, and notes who would answer alike.
type groupProber struct {
	table *groupTable
	class *groupClass
	keys  []prefixhash.Key
	run   int
	seat  int
	agree []uint64
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
	has := set.has(b.seat)
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

// Guess is what each assumption about a holder's cache says of a prompt, to be
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
	if seated := m.class.Load(); seated != nil {
		c = seated
	}
	b := r.group.alone(x, r, m, c, &s, keys, p)
	g.list = list
	g.Hits = cachegroups.Predict(g.Hits, c.geometry, list.all, p.Tokens(), b)
}

// Served tells what a holder reported of a prompt that Guess was asked of: how many
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
				m.judgeTrust(c)
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

// Trust says how far the matches of a holder can be relied on. ok is false when
// nothing is known of its cache yet.
func (x *Index) Trust(id HolderID, tenant, model string) (t GroupTrust, ok bool) {
	if m := x.memberOf(id, modelKey{tenant, model}); m != nil {
		if p := m.trust.Load(); p != nil {
			return *p, true
		}
	}
	return GroupTrust{}, false
}
