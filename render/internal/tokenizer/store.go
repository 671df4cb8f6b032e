package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"warmroute/render/internal/prefixcache"
	"warmroute/render/work"
)

// Store encodes prompts that begin like earlier ones at the cost of their new text. It
// remembers the ids of texts up to a cut by a running 128-bit hash.
//
// A cut is the start or the end of an added token in the raw text. The reference encodes
// the text on either side of it independently, so the ids of a text are the ids of its
// prefix up to a cut, followed by the ids of the rest. prepareCutPoints determines when
// that holds.
//
// A Store is safe for concurrent use; it holds its lock to look up and to remember, never
// while it encodes.
type Store struct {
	t     *Tokenizer
	seed  prefixcache.Seed
	cache *prefixcache.Cache[encoded]
}

const (
	// storeMinimum is the text, in bytes, below which encoding is as cheap as a lookup.
	storeMinimum = 256
	// storeStep is the text between entries, in bytes: prompts that diverge lose at most
	// so much, and an entry's own 200 bytes do not outweigh its ids.
	storeStep = 1024
	// storeGap is the least text between listed cuts, in bytes. Only the text before a
	// cut decides whether it is listed, so prompts share the cuts in equal beginnings.
	storeGap = 64
)

// encoded has the ids of a prompt's beginning.
type encoded struct {
	ids    []uint32 // beyond the parent's
	tokens int      // in all
	text   int      // bytes of text in all
}

type entry = prefixcache.Entry[encoded]

// NewStore makes a store of at most limit bytes. Each prompt costs 4 bytes for each token
// that it does not share with others.
func NewStore(t *Tokenizer, limit int64) (*Store, error) {
	if limit < 0 {
		return nil, fmt.Errorf("a prefix store of %d bytes", limit)
	}
	return &Store{t: t, seed: prefixcache.NewSeed(), cache: prefixcache.New[encoded](limit)}, nil
}

// storeScratch is the memory of one call.
type storeScratch struct {
	cuts  []storeCut
	plan  []int // the cuts to remember, and the number of ids before each
	count []int
	ids   []uint32
	path  []*entry
}

type storeCut struct {
	at    int
	piece int // number of pieces before it, of a text in pieces
	hash  prefixcache.Hash
}

// Append appends the same ids as Tokenizer.Append, and charges b as that does. Of work that
// ends early the Store remembers what was encoded up to the last cut, so that a prompt that
// took too long takes less the next time.
func (s *Store) Append(b *work.Budget, dst []uint32, text []byte, addSpecial bool) []uint32 {
	t := s.t
	sc := t.scratch(b)
	st := &sc.store
	st.reset()
	hit := s.find(text, addSpecial, sc)
	sc.work.Step((len(text) - length(hit)) / 16)
	if !utf8.Valid(text[length(hit):]) { // the known text is valid
		text = sc.utf8(text)
		hit = s.find(text, addSpecial, sc)
	}
	s.extend(text, addSpecial, hit, sc)
	dst = s.appendIDs(dst, hit, sc)
	t.release(sc, len(text))
	return dst
}

func (st *storeScratch) reset() { st.ids, st.plan, st.count = st.ids[:0], st.plan[:0], st.count[:0] }

// find lists the cuts of text and returns the entry of the deepest known cut; nil: none is
// known.
func (s *Store) find(text []byte, addSpecial bool, sc *scratch) *entry {
	if !s.t.cuts || len(text) < storeMinimum {
		return nil
	}
	s.findCuts(text, addSpecial, sc)
	return s.known(&sc.store)
}

// length returns the number of bytes of text up to the cut of e.
func length(e *entry) int {
	if e == nil {
		return 0
	}
	return e.Value.text
}

// tokens returns the number of tokens up to the cut of e.
func tokens(e *entry) int {
	if e == nil {
		return 0
	}
	return e.Value.tokens
}

// appendIDs appends the ids of the hit and of the rest. It needs no lock: entries of the
// cache never change.
func (s *Store) appendIDs(dst []uint32, hit *entry, sc *scratch) []uint32 {
	st, n := &sc.store, tokens(hit)+len(sc.store.ids)
	if cap(dst)-len(dst) < n {
		sc.work.Memory(4 * (len(dst) + n))
	}
	sc.work.Step(n / 8)
	dst = slices.Grow(dst, n)
	path := st.path[:0]
	for e := hit; e != nil; e = e.Parent {
		path = append(path, e)
	}
	for _, e := range slices.Backward(path) {
		dst = append(dst, e.Value.ids...)
	}
	clear(path) // or the scratch would keep evicted entries
	st.path = path
	return append(dst, st.ids...)
}

// findCuts lists the cuts of text, each with the hash of the text before it. The first hash
// covers addSpecial, on which the ids also depend.
func (s *Store) findCuts(text []byte, addSpecial bool, sc *scratch) {
	st := &sc.store
	var h prefixcache.Hash
	if addSpecial {
		h.Lo = 1
	}
	st.cuts = st.cuts[:0]
	last, steps := 0, 0
	add := func(at int) {
		if at < last+storeGap {
			return
		}
		if steps += cutSteps + (at-last)>>5; steps > cutsCharged {
			sc.work.Step(steps)
			steps = 0
		}
		h, last = s.seed.Add(h, text[last:at]), at
		if at >= storeMinimum {
			before := cap(st.cuts)
			st.cuts = append(st.cuts, storeCut{at: at, hash: h})
			work.Grown(sc.work, before, st.cuts)
		}
	}
	if s.t.anchor.ok {
		s.t.raw.anchoredCuts(sc.work, text, &s.t.anchor, add)
	} else {
		c := cutter{m: &s.t.raw, text: text, work: sc.work}
		for p, ok := c.next(); ok; p, ok = c.next() {
			if p.token != nil && !p.token.LStrip && !p.token.RStrip {
				add(p.start)
				add(p.end)
			}
		}
	}
	sc.work.Step(steps)
}

// anchoredCuts calls add with the bounds of the tokens that begin with the anchor, in
// order, and searches no other text.
func (m *matcher) anchoredCuts(b *work.Budget, text []byte, a *anchor, add func(at int)) {
	var last [2]*addedToken // the last two different tokens with longest set: a template has few
	for pos, steps := 0, 0; ; {
		i := bytes.IndexByte(text[pos:], a.first)
		if i < 0 {
			b.Step(steps)
			b.Read(len(text) - pos)
			return
		}
		if steps += 1 + i>>5; steps > anchorSteps {
			b.Step(steps)
			steps = 0
		}
		pos += i
		if pos+1 < len(text) && !a.second[text[pos+1]] {
			pos++
			continue
		}
		end, t := known(text, pos, last)
		if t == nil {
			if end, t = m.longest(b, text, pos); t != nil && t.longest {
				last[0], last[1] = t, last[0]
			}
		}
		if t == nil {
			pos++
			continue
		}
		if !t.LStrip && !t.RStrip {
			add(pos)
			add(end)
		}
		pos = end
	}
}

// anchorSteps and cutsCharged are the steps of a search, and of its cuts, in one charge.
const anchorSteps, cutsCharged = 512, 2048

// cutSteps are the steps of hashing the text before a cut and looking it up.
const cutSteps = 8

// known returns the one of tokens that begins at pos, and its end.
func known(text []byte, pos int, tokens [2]*addedToken) (end int, t *addedToken) {
	for _, t := range tokens {
		if t != nil && len(text)-pos >= len(t.Content) && string(text[pos:pos+len(t.Content)]) == t.Content {
			return pos + len(t.Content), t
		}
	}
	return 0, nil
}

// known returns the entry of the deepest known cut.
func (s *Store) known(st *storeScratch) *entry {
	return s.cache.Deepest(len(st.cuts), func(i int) prefixcache.Hash { return st.cuts[i].hash })
}

// extend encodes the text beyond the hit, and remembers what it has encoded, however it ends.
func (s *Store) extend(text []byte, addSpecial bool, hit *entry, sc *scratch) {
	defer s.remember(hit, sc)
	s.encodeRest(text, addSpecial, hit, sc)
}

// encodeRest appends the ids of the text beyond the hit, and plans the cuts to remember with
// the number of ids before each.
func (s *Store) encodeRest(text []byte, addSpecial bool, hit *entry, sc *scratch) {
	st := &sc.store
	pos, stored := 0, 0
	if hit != nil {
		pos, stored = hit.Value.text, hit.Value.text
	} else if addSpecial {
		st.ids = append(st.ids, s.t.before...)
	}
	if s.t.cuts && len(text) >= storeMinimum {
		for i, c := range st.cuts {
			if c.at <= pos || c.at < stored+storeStep && i < len(st.cuts)-1 {
				continue
			}
			before := len(st.ids)
			st.ids = s.t.encode(st.ids, text[pos:c.at], pos == 0, sc)
			sc.remembers(len(st.ids) - before)
			st.plan, st.count = append(st.plan, i), append(st.count, len(st.ids))
			pos, stored = c.at, c.at
		}
	}
	st.ids = s.t.encode(st.ids, text[pos:], pos == 0, sc)
	if addSpecial {
		st.ids = append(st.ids, s.t.after...)
	}
}

// remember adds the planned cuts to the cache, behind the hit.
func (s *Store) remember(hit *entry, sc *scratch) {
	st := &sc.store
	s.cache.Remember(hit, len(st.plan), func(i int) prefixcache.Hash { return st.cuts[st.plan[i]].hash },
		func(i int, before *encoded) (encoded, int64) {
			from := 0
			if i > 0 {
				from = st.count[i-1]
			}
			ids := st.ids[from:st.count[i]]
			e := encoded{text: st.cuts[st.plan[i]].at, tokens: len(ids), ids: append(make([]uint32, 0, len(ids)), ids...)}
			if before != nil {
				e.tokens += before.tokens
			}
			return e, 4 * int64(len(ids))
		})
}

// remembers charges for the copy of so many ids that remember makes: nothing may stop remember.
func (sc *scratch) remembers(ids int) {
	sc.work.Step(16 + ids/8)
	sc.work.Memory(4 * ids)
}

// StoreStats reports how full a store is.
type StoreStats struct {
	Entries int
	Bytes   int64
}

// Stats counts the store's entries and the bytes they take.
func (s *Store) Stats() StoreStats {
	entries, bytes := s.cache.Stats()
	return StoreStats{Entries: entries, Bytes: bytes}
}

// prepareCutPoints decides whether a Store may cut text at added tokens:
//   - no token may have single_word: its match depends on the character beyond the cut;
//   - if some token strips whitespace, none may begin or end with whitespace: the
//     stripped whitespace could otherwise belong to another token, beyond the cut.
//
// Tokens of the normalized text are never cuts, because normalization spans them; tokens
// that strip are none either.
func (t *Tokenizer) prepareCutPoints() {
	strips, spaced := false, false
	for i := range t.raw.tokens {
		a := &t.raw.tokens[i]
		if a.SingleWord {
			return
		}
		strips = strips || a.LStrip || a.RStrip
		b := []byte(a.Content)
		first, _ := utf8.DecodeRune(b)
		last, _ := utf8.DecodeLastRune(b)
		spaced = spaced || rustSpace().Has(first) || rustSpace().Has(last) || len(bytes.TrimSpace(b)) < len(b)
	}
	t.cuts = len(t.raw.tokens) > 0 && !(strips && spaced)
	t.anchor = t.raw.anchor()
}

// anchor is the byte that begins the most special tokens (among equals, the most tokens)
// and occurs in tokens only as their first byte, if there is such a byte. No other token
// reaches across it, so the text before it does not decide whether a token begins at it:
// a Store can cut there without finding the other tokens (in some models every run of
// newlines).
type anchor struct {
	ok     bool
	first  byte
	second [256]bool // the bytes that follow it in tokens; all, if the byte alone is a token
}

func (m *matcher) anchor() anchor {
	var a anchor
	var inside [256]bool
	var special, all [256]int
	for i := range m.tokens {
		a := &m.tokens[i]
		for j := 1; j < len(a.Content); j++ {
			inside[a.Content[j]] = true
		}
		if all[a.Content[0]]++; a.Special {
			special[a.Content[0]]++
		}
	}
	for c := range all {
		if inside[c] || all[c] == 0 {
			continue
		}
		if best := a.first; !a.ok || special[c] > special[best] || special[c] == special[best] && all[c] > all[best] {
			a.first, a.ok = byte(c), true
		}
	}
	for i := range m.tokens {
		switch content := m.tokens[i].Content; {
		case !a.ok || content[0] != a.first:
		case len(content) > 1:
			a.second[content[1]] = true
		default:
			for b := range a.second {
				a.second[b] = true
			}
		}
	}
	return a
}
