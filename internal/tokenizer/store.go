package tokenizer

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/zeebo/xxh3"

	"warmroute/prefixhash"
)

// Store encodes prompts that begin like earlier ones, paying for the new text
// only. It remembers, by a running 128-bit hash, what the text up to a cut
// became: token ids, and the block keys of one chain.
//
// A cut is where an added token found in the raw text starts or ends. The
// reference encodes the text on either side of it independently, so the ids of
// a text are those of its prefix up to a cut followed by those of the rest.
// prepareCutPoints says when that holds.
//
// Entries form a tree: each holds what it adds to its parent. The least
// recently used leaf goes first when the store is full. A Store is safe for
// concurrent use; its locks are held for look-ups only, never while encoding.
type Store struct {
	t      *Tokenizer
	seed   uint64 // the process's own: nobody can prepare two texts with one hash
	memory memory
}

const (
	// storeMinimum is the text below which encoding is as cheap as looking up.
	storeMinimum = 256
	// storeStep is the text between entries: small enough that prompts that
	// part company lose little, large enough that an entry's own 200 bytes do
	// not outweigh its ids.
	storeStep = 1024
	// storeGap is the text between cuts that are considered. Which ones are
	// depends on the text before them alone, so two prompts agree about theirs.
	storeGap = 64
)

// memory holds the entries. It has one lock, held for a look-up a prompt: were it
// split by how prompts begin, prompts with one beginning would have to do with a
// fraction of the room.
type memory struct {
	mu      sync.Mutex
	entries map[xxh3.Uint128]*entry
	recent  entry // ring: recent.next is the most recently used
	size    int64
	limit   int64
}

type entry struct {
	hash           xxh3.Uint128
	parent         *entry
	children       int
	prev, next     *entry
	live           bool
	ids            []uint32         // beyond the parent's
	keys           []prefixhash.Key // beyond the parent's
	tokens, blocks int              // in all
	text           int              // bytes of text in all
}

// Chain is a chain of block keys: what the first block links on and how many
// tokens a block has. The zero value asks for no keys. Blocks with extra keys
// are not the store's business: ask for the ids and hash them.
type Chain struct {
	Root      prefixhash.Key
	BlockSize int
}

// EncodeOptions say what Store.Append does.
type EncodeOptions struct {
	AddSpecial bool // as for Tokenizer.Append
	Chain      Chain
	// OmitIDs leaves the ids out: the keys are all that is wanted.
	OmitIDs bool
}

// NewStore makes a store of at most limit bytes. Each prompt costs 4 bytes a
// token and 8 a block beyond what it shares with others.
func NewStore(t *Tokenizer, limit int64) (*Store, error) {
	if limit < 0 {
		return nil, fmt.Errorf("a prefix store of %d bytes", limit)
	}
	s := &Store{t: t, seed: rand.Uint64()}
	m := &s.memory
	m.entries, m.limit = map[xxh3.Uint128]*entry{}, limit
	m.recent.next, m.recent.prev = &m.recent, &m.recent
	return s, nil
}

// storeScratch is the memory one call works in.
type storeScratch struct {
	cuts  []storeCut
	plan  []int // the cuts to remember, and how many ids lie before each
	count []int
	ids   []uint32
	keys  []prefixhash.Key
	path  []*entry
}

type storeCut struct {
	at    int
	piece int // how many pieces lie before, of a text that is made of them
	hash  xxh3.Uint128
}

// Append appends text's ids to ids and its block keys to keys, and returns the
// number of tokens too, equal to what Tokenizer.Append and
// prefixhash.AppendTokens give.
func (s *Store) Append(ids []uint32, keys []prefixhash.Key, text []byte, o EncodeOptions) ([]uint32, []prefixhash.Key, int) {
	t := s.t
	sc := t.scratch()
	defer t.release(sc, len(text))
	st := &sc.store
	st.ids, st.keys, st.plan, st.count = st.ids[:0], st.keys[:0], st.plan[:0], st.count[:0]
	hit := s.find(text, o, st)
	if !utf8.Valid(text[hit.length():]) { // what is known is valid
		text = sc.utf8(text)
		hit = s.find(text, o, st)
	}
	tail := 0 // ids of the prefix's last, unfinished block, put before the new ones
	link := o.Chain.Root
	if hit != nil {
		if o.Chain.BlockSize > 0 {
			tail = hit.tokens % o.Chain.BlockSize
			st.ids = hit.appendTail(st.ids, tail)
		}
		link = hit.lastKey(link)
		if !o.OmitIDs {
			ids = appendPath(ids, hit, st, func(e *entry) []uint32 { return e.ids })
		}
		keys = appendPath(keys, hit, st, func(e *entry) []prefixhash.Key { return e.keys })
	}
	s.encodeRest(text, o, hit, sc)
	st.keys = prefixhash.AppendTokens(st.keys, link, st.ids, o.Chain.BlockSize, nil)
	s.memory.remember(hit, st, tail, o.Chain.BlockSize)
	total := len(st.ids) - tail
	if hit != nil {
		total += hit.tokens
	}
	if !o.OmitIDs {
		ids = append(ids, st.ids[tail:]...)
	}
	return ids, append(keys, st.keys...), total
}

// find lists the cuts of text and returns the entry of the deepest one that is
// known; nil if none is.
func (s *Store) find(text []byte, o EncodeOptions, st *storeScratch) *entry {
	if !s.t.cuts || len(text) < storeMinimum {
		return nil
	}
	s.findCuts(text, o, st)
	return s.memory.find(st)
}

// length is how many bytes of text e stands for.
func (e *entry) length() int {
	if e == nil {
		return 0
	}
	return e.text
}

// findCuts lists the cuts of text with the hash of all before each. What else
// the ids and keys depend on goes into the first hash.
func (s *Store) findCuts(text []byte, o EncodeOptions, st *storeScratch) {
	h := xxh3.Uint128{Hi: uint64(o.Chain.Root), Lo: uint64(o.Chain.BlockSize) << 1}
	if o.AddSpecial {
		h.Lo |= 1
	}
	st.cuts = st.cuts[:0]
	last := 0
	add := func(at int) {
		if at < last+storeGap {
			return
		}
		d := xxh3.Hash128Seed(text[last:at], s.seed)
		// The step to the next hash: order and both halves matter.
		h.Hi, h.Lo = spread(h.Hi^d.Lo, s.seed), spread(h.Lo+bits.RotateLeft64(d.Hi, 32), h.Hi)
		last = at
		if at >= storeMinimum {
			st.cuts = append(st.cuts, storeCut{at: at, hash: h})
		}
	}
	if s.t.anchor.ok {
		s.t.raw.anchoredCuts(text, &s.t.anchor, add)
		return
	}
	c := cutter{m: &s.t.raw, text: text}
	for {
		p, ok := c.next()
		if !ok {
			return
		}
		if p.token != nil && !p.token.LStrip && !p.token.RStrip {
			add(p.start)
			add(p.end)
		}
	}
}

// anchoredCuts gives the bounds of the tokens that begin with the anchor, in
// order: what lies between them need not be searched.
func (m *matcher) anchoredCuts(text []byte, a *anchor, add func(at int)) {
	for pos := 0; ; {
		i := bytes.IndexByte(text[pos:], a.first)
		if i < 0 {
			return
		}
		pos += i
		if pos+1 < len(text) && !a.second[text[pos+1]] {
			pos++
			continue
		}
		end, t := m.longest(text, pos)
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

// spread mixes two words into one: the halves of their 128-bit product.
func spread(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, b|1)
	return hi ^ lo ^ bits.RotateLeft64(a, 23)
}

// find returns the entry of the deepest cut that is known, and makes it and
// all it builds on the most recent.
func (m *memory) find(st *storeScratch) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(st.cuts) - 1; i >= 0; i-- {
		e := m.entries[st.cuts[i].hash]
		if e != nil && e.text == st.cuts[i].at {
			m.touch(e)
			return e
		}
	}
	return nil
}

// touch keeps parents more recent than their children, so that the least
// recent entry is always a leaf.
func (m *memory) touch(e *entry) {
	for ; e != nil; e = e.parent {
		if e.live {
			e.unlink()
			m.front(e)
		}
	}
}

func (e *entry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (m *memory) front(e *entry) {
	e.prev, e.next = &m.recent, m.recent.next
	e.prev.next, e.next.prev = e, e
}

// encodeRest appends the ids of what lies beyond the hit and notes, for the
// cuts worth remembering, how many ids lie before them.
func (s *Store) encodeRest(text []byte, o EncodeOptions, hit *entry, sc *scratch) {
	st := &sc.store
	pos, stored := 0, 0
	if hit != nil {
		pos, stored = hit.text, hit.text
	} else if o.AddSpecial {
		st.ids = append(st.ids, s.t.before...)
	}
	if s.t.cuts && len(text) >= storeMinimum {
		for i, c := range st.cuts {
			if c.at <= pos || c.at < stored+storeStep && i < len(st.cuts)-1 {
				continue
			}
			st.ids = s.t.encode(st.ids, text[pos:c.at], pos == 0, sc)
			st.plan, st.count = append(st.plan, i), append(st.count, len(st.ids))
			pos, stored = c.at, c.at
		}
	}
	st.ids = s.t.encode(st.ids, text[pos:], pos == 0, sc)
	if o.AddSpecial {
		st.ids = append(st.ids, s.t.after...)
	}
}

// remember enters the planned cuts behind the hit. The first tail ids of the
// scratch belong to entries before.
func (m *memory) remember(hit *entry, st *storeScratch, tail, blockSize int) {
	if len(st.plan) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if hit != nil && !hit.live { // evicted meanwhile: its children would be unreachable
		return
	}
	parent, from, block := hit, tail, 0
	for i, cut := range st.plan {
		upTo := st.count[i]
		e := m.entries[st.cuts[cut].hash]
		blocks := 0
		if blockSize > 0 {
			blocks = upTo / blockSize
		}
		if e == nil {
			e = &entry{
				hash: st.cuts[cut].hash, parent: parent, live: true, text: st.cuts[cut].at,
				ids: exactClone(st.ids[from:upTo]), keys: exactClone(st.keys[block:blocks]),
			}
			e.tokens, e.blocks = len(e.ids), len(e.keys)
			if parent != nil {
				e.tokens, e.blocks = e.tokens+parent.tokens, e.blocks+parent.blocks
				parent.children++
			}
			m.entries[e.hash] = e
			m.front(e)
			m.size += e.size()
		}
		parent, from, block = e, upTo, blocks
	}
	m.touch(parent)
	for m.size > m.limit && m.recent.prev != &m.recent {
		m.evict(m.recent.prev)
	}
}

func exactClone[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return append(make([]T, 0, len(s)), s...)
}

// size is what an entry costs: itself, its place in the map, its contents.
func (e *entry) size() int64 {
	return int64(unsafe.Sizeof(*e)) + 48 + 4*int64(len(e.ids)) + 8*int64(len(e.keys))
}

func (m *memory) evict(e *entry) {
	e.unlink()
	e.live = false
	delete(m.entries, e.hash)
	m.size -= e.size()
	if e.parent != nil {
		e.parent.children--
	}
}

// appendTail appends the last n ids of the prefix.
func (e *entry) appendTail(dst []uint32, n int) []uint32 {
	start := len(dst)
	for range n {
		dst = append(dst, 0)
	}
	for e != nil && n > 0 {
		k := min(n, len(e.ids))
		copy(dst[start+n-k:], e.ids[len(e.ids)-k:])
		n -= k
		e = e.parent
	}
	return dst
}

func (e *entry) lastKey(root prefixhash.Key) prefixhash.Key {
	for ; e != nil; e = e.parent {
		if n := len(e.keys); n > 0 {
			return e.keys[n-1]
		}
	}
	return root
}

// appendPath appends what the entries from the first to e hold. Entries never
// change once they can be found, so no lock is needed.
func appendPath[T any](dst []T, e *entry, st *storeScratch, of func(*entry) []T) []T {
	path := st.path[:0]
	for ; e != nil; e = e.parent {
		path = append(path, e)
	}
	for i := len(path) - 1; i >= 0; i-- {
		dst = append(dst, of(path[i])...)
	}
	clear(path) // or the scratch would keep what is evicted
	st.path = path
	return dst
}

// StoreStats tells how full a store is.
type StoreStats struct {
	Entries int
	Bytes   int64
}

// Stats counts the store's entries and the bytes they take.
func (s *Store) Stats() StoreStats {
	m := &s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	return StoreStats{Entries: len(m.entries), Bytes: m.size}
}

// prepareCutPoints decides whether the text may be cut at added tokens:
//   - no token may be of single words only: whether one matches depends on the
//     character beyond the cut;
//   - if some token strips whitespace, none may begin or end with whitespace:
//     what it strips could otherwise be another's, beyond the cut.
//
// Tokens found in the normalized text are never cuts, for normalization spans
// them, and neither are the ones that strip.
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

// anchor is the byte that begins most special tokens (of such, most tokens) and
// occurs in no token but at its start, if there is one. No other token reaches
// across such a byte, so whether a token stands at it does not depend on what is
// before: the other tokens (in some models every run of newlines) need not be
// found to know that the text can be cut there.
type anchor struct {
	ok     bool
	first  byte
	second [256]bool // what may follow it in a token; any byte, if it is one itself
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
