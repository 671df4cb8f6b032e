package tokenizer

import (
	"bytes"
	"fmt"
	"sync"
	"unicode/utf8"

	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

// addedToken is one entry of added_tokens.
type addedToken struct {
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
	id         uint32
	longest    bool // no other token begins with this one
}

// matcher finds added tokens in a text: leftmost, then longest.
type matcher struct {
	tokens []addedToken
	// A trie over the tokens' bytes; node 0 is the root.
	nodes []trieNode
	first [256]bool
	root  [256]int32 // the root's children by byte, 0 where there is none
	// one is the only first byte if there is a single one: most models' tokens
	// all begin with '<', and a search for one byte is ten times faster.
	one    byte
	single bool
	// simple: no token looks beyond its own text.
	simple bool
}

type trieNode struct {
	// children are edges[lo:hi] of the node's bytes, sorted.
	bytes []byte
	next  []int32
	token int32 // -1: none ends here
	// way and end are set by join: the bytes to the next node where a token ends or
	// the trie branches, and that node.
	way []byte
	end int32
}

// Rust's \w and \s, as the reference's single_word, lstrip and rstrip use them.
var (
	rustWord  = sync.OnceValue(func() *ucd.Set { return classSet("rust_word") })
	rustSpace = sync.OnceValue(func() *ucd.Set { return classSet("rust_space") })
)

func classSet(name string) *ucd.Set {
	rs, _ := ucd.Class(name)
	return ucd.NewSet(rs)
}

// add adds a token whose text in prompts is text. It returns false if another token has
// that text.
func (m *matcher) add(text []byte, t addedToken) bool {
	if len(m.nodes) == 0 {
		m.nodes = []trieNode{{token: -1}}
		m.simple = true
	}
	at := int32(0)
	for _, b := range text {
		n := &m.nodes[at]
		i := bytes.IndexByte(n.bytes, b)
		if i < 0 {
			m.nodes = append(m.nodes, trieNode{token: -1})
			n = &m.nodes[at]
			n.bytes = append(n.bytes, b)
			n.next = append(n.next, int32(len(m.nodes)-1))
			i = len(n.bytes) - 1
		}
		at = n.next[i]
	}
	if m.nodes[at].token >= 0 {
		return false
	}
	m.nodes[at].token = int32(len(m.tokens))
	m.tokens = append(m.tokens, t)
	m.first[text[0]] = true
	m.root[text[0]] = m.nodes[0].next[bytes.IndexByte(m.nodes[0].bytes, text[0])]
	m.simple = m.simple && !t.SingleWord && !t.LStrip && !t.RStrip
	m.one, m.single = text[0], true
	for b, may := range m.first {
		if may && byte(b) != m.one {
			m.single = false
		}
	}
	return true
}

// join notes the stretches of the trie without branches, which have most of a token's
// bytes: find compares a stretch at once, and not byte by byte. join runs after all tokens
// have been added. No search stops inside a stretch, so only the first node of a stretch
// has a way, and a long token costs its length once.
func (m *matcher) join() {
	inside := make([]bool, len(m.nodes))
	for i := range m.nodes {
		n := &m.nodes[i]
		n.way, n.end = nil, int32(i)
		if n.token >= 0 {
			m.tokens[n.token].longest = len(n.bytes) == 0
		}
		if i == 0 || inside[i] { // a search begins at the root's children
			continue
		}
		for at := n; len(at.bytes) == 1; {
			n.way, n.end = append(n.way, at.bytes[0]), at.next[0]
			if at = &m.nodes[n.end]; at.token >= 0 {
				break
			}
			inside[n.end] = len(at.bytes) == 1
		}
	}
}

// find returns the next token at or after pos, with the bounds of its own text.
func (m *matcher) find(b *work.Budget, text []byte, pos int) (start, end int, t *addedToken) {
	for pos < len(text) {
		if m.single {
			i := bytes.IndexByte(text[pos:], m.one)
			if i < 0 {
				b.Read(len(text) - pos)
				return 0, 0, nil
			}
			b.Read(i)
			pos += i
		} else {
			from := pos
			for pos < len(text) && !m.first[text[pos]] {
				pos++
			}
			if b.Step((pos - from) / 8); pos == len(text) {
				return 0, 0, nil
			}
		}
		if end, t := m.longest(b, text, pos); t != nil {
			return pos, end, t
		}
		pos++
	}
	return 0, 0, nil
}

// longest returns the longest token whose text begins at pos, and its end.
func (m *matcher) longest(b *work.Budget, text []byte, pos int) (end int, t *addedToken) {
	at := m.root[text[pos]]
	if at == 0 {
		return 0, nil
	}
	for i := pos + 1; ; {
		n := &m.nodes[at]
		b.Step(1 + len(n.way)/32)
		if n.token >= 0 {
			end, t = i, &m.tokens[n.token]
		}
		if len(n.way) > 0 {
			if !bytes.HasPrefix(text[i:], n.way) {
				return end, t
			}
			i, at = i+len(n.way), n.end
			continue
		}
		if i == len(text) {
			return end, t
		}
		j := bytes.IndexByte(n.bytes, text[i])
		if j < 0 {
			return end, t
		}
		i, at = i+1, n.next[j]
	}
}

// cut is one part of a text: a token, or text between tokens (token nil).
type cut struct {
	start, end int
	token      *addedToken
}

// cutter walks a text part by part as the reference does, even in its quirk: whitespace
// that a token has stripped on its right can still begin another token.
type cutter struct {
	m    *matcher
	text []byte
	work *work.Budget
	from int // where the search continues
	done int // end of the last part
	held cut
}

// next returns the parts in order; false at the end.
func (c *cutter) next() (cut, bool) {
	if c.held.token != nil {
		p := c.held
		c.held = cut{}
		return p, true
	}
	for c.m != nil && len(c.m.nodes) > 0 {
		start, end, t := c.m.find(c.work, c.text, c.from)
		if t == nil {
			break
		}
		c.from = end
		if !c.m.simple {
			if t.SingleWord && !c.alone(start, end) {
				continue
			}
			if t.LStrip {
				start = max(c.spacesBefore(start), c.done)
			}
			if t.RStrip {
				end = c.spacesAfter(end)
			}
		}
		before := cut{start: c.done, end: start}
		c.done = end
		if start >= end { // the token before has stripped all of it
			t = nil
		}
		if before.start < before.end {
			c.held = cut{start, end, t}
			return before, true
		}
		if t != nil {
			return cut{start, end, t}, true
		}
	}
	c.m = nil
	if c.done < len(c.text) {
		p := cut{start: c.done, end: len(c.text)}
		c.done = len(c.text)
		return p, true
	}
	return cut{}, false
}

func (c *cutter) alone(start, end int) bool {
	words := rustWord()
	if start > 0 {
		if r, _ := utf8.DecodeLastRune(c.text[:start]); words.Has(r) {
			return false
		}
	}
	if end < len(c.text) {
		if r, _ := utf8.DecodeRune(c.text[end:]); words.Has(r) {
			return false
		}
	}
	return true
}

// spacesBefore goes back from i over whitespace, no further than done.
func (c *cutter) spacesBefore(i int) int {
	for i > c.done {
		c.work.Step(1)
		r, n := utf8.DecodeLastRune(c.text[:i])
		if !rustSpace().Has(r) {
			break
		}
		i -= n
	}
	return i
}

func (c *cutter) spacesAfter(i int) int {
	for i < len(c.text) {
		c.work.Step(1)
		r, n := utf8.DecodeRune(c.text[i:])
		if !rustSpace().Has(r) {
			break
		}
		i += n
	}
	return i
}

// addTokens adds the added tokens. As in the reference, a token has the id that its text
// has in the model, else the next free id; the file's id does not count.
func (t *Tokenizer) addTokens(added []addedToken) error {
	byText := map[string]uint32{}
	byID := map[uint32]addedToken{}
	var order []uint32
	next := uint32(t.modelSize)
	for _, a := range added {
		if a.Content == "" {
			continue
		}
		id, ok := byText[a.Content]
		if !ok {
			if id, ok = t.modelID(a.Content); !ok {
				id = next
				next++
			}
		}
		byText[a.Content] = id
		if _, ok := byID[id]; !ok {
			order = append(order, id)
		}
		a.id = id
		byID[id] = a
	}
	t.added = byText
	var s scratch
	s.charge(t.loading)
	for _, id := range order {
		a := byID[id]
		t.loading.Step(entrySteps + len(a.Content)*nodeSteps)
		t.loading.Memory(len(a.Content) * nodeBytes)
		text, m := []byte(a.Content), &t.raw
		if a.Normalized {
			text, m = t.normalized(text, &s), &t.afterNormal
		}
		if len(text) == 0 {
			return fmt.Errorf("the added token %q is empty once normalized", a.Content)
		}
		if !m.add(text, a) {
			return fmt.Errorf("the added token %q is found as the same text as another", a.Content)
		}
	}
	t.raw.join()
	t.afterNormal.join()
	t.prepareCutPoints()
	return nil
}

// modelID returns the id of a text that is one token of the model itself.
func (t *Tokenizer) modelID(text string) (uint32, bool) {
	l := &modelLoader{m: &t.model, foreign: t.foreign}
	id, _, ok := l.id([]byte(text))
	return id, ok
}
