package tokenizer

import (
	"bytes"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"warmroute/render/work"
)

// bpe is the model: it encodes one word by merging its symbols, the lowest rank first,
// the leftmost of equal ranks first.
type bpe struct {
	// vocab has tokens by the text that words have: in a byte-level model by the
	// bytes for which a token stands.
	vocab     *vocabulary
	merges    *merges
	byteLevel bool
	// byteID has the ids of single bytes (byte-level); -1: none.
	byteID [256]int32
	plain  bool // byteID has all bytes, and words have no prefix or suffix
	// fallback has the ids of the tokens <0x00> to <0xFF>; -1: none.
	fallback     [256]int32
	byteFallback bool
	unk          int64 // -1: none
	fuseUnk      bool
	ignoreMerges bool
	prefix       []byte // continuing_subword_prefix
	suffix       []byte // end_of_word_suffix
	// cuttable: append may cut a word between two characters that no token has side
	// by side, because no merge can join them. joined has the ASCII pairs of all
	// tokens, joins the characters before ▁ in all tokens.
	cuttable bool
	joined   [128][2]uint64
	joins    map[rune]bool
	// scanMax is the number of symbols up to which scanning all pairs beats a
	// heap; 0 if two texts share an id: then only the heap merges as the reference.
	scanMax int
}

// mark is the word mark of SentencePiece models.
const mark = "\u2581"

// scanSymbols was measured: up to some 30 symbols the scan is faster.
const scanSymbols = 32

// merger is the memory of one goroutine for merging.
type merger struct {
	ids   []uint32
	ranks []uint64
	prev  []int32
	next  []int32
	heap  []merge
	text  []byte
	work  *work.Budget
}

type merge struct {
	rank, id uint32
	pos      int32
}

// append appends the ids of one word, which is not empty.
func (m *bpe) append(dst []uint32, word []byte, w *merger, c *wordCache) []uint32 {
	if !m.cuttable {
		return m.part(dst, word, w, c)
	}
	w.work.Step(len(word) / 8)
	start, parts := 0, 0
	for i := 1; i < len(word); i++ {
		before, b := word[i-1], word[i]
		switch {
		case b < utf8.RuneSelf && before < utf8.RuneSelf:
			if m.joined[before][b>>6]>>(b&63)&1 != 0 {
				continue
			}
		case b == mark[0] && bytes.HasPrefix(word[i:], []byte(mark)):
			if r, _ := utf8.DecodeLastRune(word[start:i]); string(r) == mark || m.joins[r] {
				continue
			}
		default:
			continue
		}
		if parts++; parts%wordsCharged == 0 {
			w.work.Step(wordSteps * wordsCharged)
		}
		dst = m.part(dst, word[start:i], w, c)
		start = i
	}
	return m.part(dst, word[start:], w, c)
}

// wordSteps are the steps of finding a word among the tokens.
const wordSteps = 2

// part encodes a word, or a part of one, without cutting it: it finds the text among the
// tokens or in the cache, or merges it. Its callers charge for the search.
func (m *bpe) part(dst []uint32, word []byte, w *merger, c *wordCache) []uint32 {
	h := xxh3.Hash(word)
	if s := m.vocab.find(word, uint32(h)); s != nil && s.size&whole != 0 {
		return append(dst, s.id)
	}
	return m.cached(dst, word, h, w, c)
}

func (m *bpe) cached(dst []uint32, word []byte, h uint64, w *merger, c *wordCache) []uint32 {
	if c == nil || len(word) > cacheWord {
		return m.merge(dst, word, w)
	}
	if out, ok := c.get(dst, word, h); ok {
		return out
	}
	n := len(dst)
	dst = m.merge(dst, word, w)
	c.put(word, h, dst[n:])
	return dst
}

// merge appends the ids of one word by merging its symbols.
func (m *bpe) merge(dst []uint32, word []byte, w *merger) []uint32 {
	w.work.Step(len(word))
	if cap(w.ids) < len(word) {
		w.work.Memory(4 * len(word))
		w.ids = make([]uint32, 0, len(word))
	}
	if m.plain {
		w.ids = w.ids[:0]
		for _, b := range word {
			w.ids = append(w.ids, uint32(m.byteID[b]))
		}
	} else {
		w.ids = m.symbols(w.ids[:0], word, w)
	}
	switch n := len(w.ids); {
	case n < 2:
		return append(dst, w.ids...)
	case n <= m.scanMax:
		return m.scan(dst, w)
	default:
		return m.queue(dst, w)
	}
}

// symbols appends the ids of a word's characters. As in the reference, an unknown character
// waits until a known one follows, and stands behind the bytes of fallbacks in between.
func (m *bpe) symbols(dst []uint32, word []byte, w *merger) []uint32 {
	waiting := false
	flush := func() {
		if waiting {
			dst = append(dst, uint32(m.unk))
			waiting = false
		}
	}
	for i := 0; i < len(word); {
		n := 1
		if !m.byteLevel {
			_, n = utf8.DecodeRune(word[i:])
		}
		text := word[i : i+n]
		if len(m.prefix)+len(m.suffix) > 0 {
			w.text = w.text[:0]
			if i > 0 {
				w.text = append(w.text, m.prefix...)
			}
			w.text = append(w.text, text...)
			if i+n == len(word) {
				w.text = append(w.text, m.suffix...)
			}
			text = w.text
		}
		i += n
		if id, ok := m.vocab.id(text); ok {
			flush()
			dst = append(dst, id)
			continue
		}
		if m.byteFallback {
			if out, ok := m.appendFallback(dst, text); ok {
				dst = out
				continue
			}
		}
		if m.unk >= 0 {
			if !m.fuseUnk {
				flush()
			}
			waiting = true
		}
	}
	flush()
	return dst
}

// appendFallback appends the fallback tokens of the bytes of text, if all of them exist.
func (m *bpe) appendFallback(dst []uint32, text []byte) ([]uint32, bool) {
	n := len(dst)
	add := func(b byte) bool {
		if m.fallback[b] < 0 {
			return false
		}
		dst = append(dst, uint32(m.fallback[b]))
		return true
	}
	for _, b := range text {
		if !m.byteLevel {
			if !add(b) {
				return dst[:n], false
			}
			continue
		}
		var enc [utf8.UTFMax]byte
		for _, b := range enc[:utf8.EncodeRune(enc[:], byteRune[b])] {
			if !add(b) {
				return dst[:n], false
			}
		}
	}
	return dst, true
}

// scan merges few symbols by looking at all pairs each time.
func (m *bpe) scan(dst []uint32, w *merger) []uint32 {
	ids, n, steps := w.ids, len(w.ids), 0
	if cap(w.ranks) < n {
		w.ranks = make([]uint64, 2*n)
	}
	rank := w.ranks[:n]
	for i := range n - 1 {
		rank[i] = m.merges.get(ids[i], ids[i+1])
	}
	rank[n-1] = noMerge
	for {
		best, at := noMerge, -1
		for i, r := range rank[:n-1] {
			if r>>32 < best>>32 {
				best, at = r, i
			}
		}
		steps += n / 4 // at most scanSymbols / 4: one charge at the end is early enough
		if at < 0 {
			w.work.Step(steps)
			return append(dst, ids[:n]...)
		}
		ids[at] = uint32(best)
		copy(ids[at+1:n], ids[at+2:n])
		copy(rank[at:n], rank[at+1:n])
		n--
		rank[n-1] = noMerge
		if at+1 < n {
			rank[at] = m.merges.get(ids[at], ids[at+1])
		}
		if at > 0 {
			rank[at-1] = m.merges.get(ids[at-1], ids[at])
		}
	}
}

// queue merges many symbols by a heap over a linked list: O(n log n). It skips stale
// entries by the reference's own rule: the pair at an entry's place must still give the
// entry's id.
func (m *bpe) queue(dst []uint32, w *merger) []uint32 {
	ids, n := w.ids, len(w.ids)
	if cap(w.prev) < n {
		w.work.Memory(16 * n)
		w.prev, w.next = make([]int32, 2*n), make([]int32, 2*n)
	}
	prev, next := w.prev[:n], w.next[:n]
	if cap(w.heap) < n {
		w.work.Memory(12 * n)
		w.heap = make([]merge, 0, n)
	}
	w.heap = w.heap[:0]
	for i := range n {
		prev[i], next[i] = int32(i-1), int32(i+1)
	}
	next[n-1] = -1
	for i := range n - 1 {
		w.offer(m.merges.get(ids[i], ids[i+1]), int32(i))
	}
	for len(w.heap) > 0 {
		top := w.pop()
		i := top.pos
		// A symbol that its left neighbour has absorbed is out of the list.
		if prev[i] == removed || next[i] < 0 {
			continue
		}
		j := next[i]
		if v := m.merges.get(ids[i], ids[j]); v == noMerge || uint32(v) != top.id {
			continue
		}
		ids[i] = top.id
		next[i] = next[j]
		prev[j] = removed
		if next[i] >= 0 {
			prev[next[i]] = i
			w.offer(m.merges.get(ids[i], ids[next[i]]), i)
		}
		if p := prev[i]; p >= 0 {
			w.offer(m.merges.get(ids[p], ids[i]), p)
		}
	}
	for i := int32(0); i >= 0; i = next[i] {
		dst = append(dst, ids[i])
	}
	return dst
}

const removed = -2

// mergeSteps are the steps of looking a pair up and queueing it.
const mergeSteps = 2

func (a merge) before(b merge) bool { return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos }

func (w *merger) offer(v uint64, pos int32) {
	if v == noMerge {
		return
	}
	e := merge{uint32(v >> 32), uint32(v), pos}
	before := cap(w.heap)
	w.heap = append(w.heap, e)
	work.Grown(w.work, before, w.heap)
	h := w.heap
	i := len(h) - 1
	w.work.Step(mergeSteps)
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
}

func (w *merger) pop() merge {
	h := w.heap
	top := h[0]
	n := len(h) - 1
	e := h[n]
	w.heap = h[:n]
	w.work.Step(bits.Len(uint(n)))
	for i := 0; i < n; {
		c := 2*i + 1
		if c+1 < n && h[c+1].before(h[c]) {
			c++
		}
		if c >= n || !h[c].before(e) {
			h[i] = e
			break
		}
		h[i] = h[c]
		i = c
	}
	return top
}

// prepare computes the tables of append: which texts are whole, and where append may cut
// words.
func (m *bpe) prepare(b *work.Budget) {
	m.plain = m.byteLevel && len(m.prefix)+len(m.suffix) == 0
	for b := range m.byteID {
		m.byteID[b] = -1
		if m.byteLevel {
			if id, ok := m.vocab.id([]byte{byte(b)}); ok {
				m.byteID[b] = int32(id)
			} else {
				m.plain = false
			}
		}
	}
	m.scanMax = scanSymbols
	seen := make([]uint64, maxID/64+1)
	w := merger{work: b}
	for i := range m.vocab.slots {
		s := &m.vocab.slots[i]
		if s.size == 0 {
			continue
		}
		if seen[s.id/64]>>(s.id%64)&1 != 0 {
			m.scanMax = 0
		}
		seen[s.id/64] |= 1 << (s.id % 64)
	}
	for i := range m.vocab.slots {
		s := &m.vocab.slots[i]
		if s.size == 0 {
			continue
		}
		if m.ignoreMerges {
			s.size |= whole
			continue
		}
		if out := m.merge(nil, m.vocab.text(s), &w); len(out) == 1 && out[0] == s.id {
			s.size |= whole
		}
	}
}

// prepareCuts finds the characters that tokens have side by side.
func (m *bpe) prepareCuts(mergesUseBytes bool) {
	if m.byteLevel || m.ignoreMerges || mergesUseBytes || len(m.prefix)+len(m.suffix) > 0 {
		return
	}
	if _, ok := m.vocab.id([]byte(mark)); !ok {
		return
	}
	// Characters that vanish would let the two sides of a cut meet.
	vanish := !m.byteFallback
	for _, id := range m.fallback {
		vanish = vanish || id < 0
	}
	if vanish && m.unk < 0 {
		return
	}
	m.cuttable, m.joins = true, map[rune]bool{}
	for b := range byte(utf8.RuneSelf) {
		// Only before a known character is an unknown one before it written out.
		if _, ok := m.vocab.id([]byte{b}); !ok {
			for before := range m.joined {
				m.joined[before][b>>6] |= 1 << (b & 63)
			}
		}
	}
	for i := range m.vocab.slots {
		s := &m.vocab.slots[i]
		if s.size == 0 {
			continue
		}
		last := rune(-1)
		for _, r := range string(m.vocab.text(s)) {
			switch {
			case string(r) == mark && last >= 0:
				m.joins[last] = true
			case r < utf8.RuneSelf && last >= 0 && last < utf8.RuneSelf:
				m.joined[last][r>>6] |= 1 << (r & 63)
			}
			last = r
		}
	}
}

func byteToken(b int) string { return fmt.Sprintf("<0x%02X>", b) }
