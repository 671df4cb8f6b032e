package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"warmroute/render/internal/onig"
	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

// span is a piece of the text during pre-tokenization. lead marks the piece at the
// beginning of the whole text.
type span struct {
	start, end int32
	lead       bool
}

// found is one part of a piece: a match of a pattern, or text between matches.
type found struct {
	start, end int32
	match      bool
}

// finder cuts a piece into matches and the text between them, in order.
type finder interface {
	find(dst []found, text []byte, s *scratch) []found
}

type regexFinder struct{ re *onig.Regexp }

func (f regexFinder) find(dst []found, text []byte, s *scratch) []found {
	s.machine.Reset(s.work, f.re, text)
	pos := 0
	for {
		start, end, ok := s.machine.Next(pos)
		if !ok {
			break
		}
		if cap(dst)-len(dst) < 2 {
			before := cap(dst)
			dst = slices.Grow(dst, 2)
			work.Grown(s.work, before, dst)
		}
		if start > pos {
			dst = append(dst, found{int32(pos), int32(start), false})
		}
		dst = append(dst, found{int32(start), int32(end), true})
		pos = end
	}
	if pos < len(text) {
		dst = append(dst, found{int32(pos), int32(len(text)), false})
	}
	return dst
}

type textFinder struct{ text []byte }

func (f textFinder) find(dst []found, text []byte, s *scratch) []found {
	s.work.Step(len(text) / 16)
	pos := 0
	for {
		s.work.Step(2)
		i := bytes.Index(text[pos:], f.text)
		if i < 0 {
			break
		}
		if i > 0 {
			dst = append(dst, found{int32(pos), int32(pos + i), false})
		}
		pos += i + len(f.text)
		dst = append(dst, found{int32(pos - len(f.text)), int32(pos), true})
	}
	if pos < len(text) {
		dst = append(dst, found{int32(pos), int32(len(text)), false})
	}
	return dst
}

// setBytes is the number of read bytes in one charge.
const setBytes = 2048

// setFinder matches each character of a set by itself.
type setFinder struct{ set *ucd.Set }

func (f setFinder) find(dst []found, text []byte, s *scratch) []found {
	pos, charged := 0, 0
	for i := 0; i < len(text); {
		if i-charged >= setBytes {
			s.work.Step(setBytes / 2)
			charged = i
		}
		r, n := utf8.DecodeRune(text[i:])
		if f.set.Has(r) {
			before := cap(dst)
			if i > pos {
				dst = append(dst, found{int32(pos), int32(i), false})
			}
			pos = i + n
			dst = append(dst, found{int32(i), int32(pos), true})
			work.Grown(s.work, before, dst)
		}
		i += n
	}
	s.work.Step((len(text) - charged) / 2)
	if pos < len(text) {
		dst = append(dst, found{int32(pos), int32(len(text)), false})
	}
	return dst
}

// wordFinder matches \w+|[^\w\s]+ as Rust's regular expressions do.
type wordFinder struct{}

func (wordFinder) find(dst []found, text []byte, s *scratch) []found {
	kind := func(r rune) int {
		switch {
		case rustWord().Has(r):
			return 1
		case rustSpace().Has(r):
			return 0
		}
		return 2
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		k, start := kind(r), i
		for i += n; i < len(text); i += n {
			s.work.Step(1)
			if r, n = utf8.DecodeRune(text[i:]); kind(r) != k {
				break
			}
		}
		dst = append(dst, found{int32(start), int32(i), k != 0})
	}
	return dst
}

// mappedFinder runs a finder on the byte-level alphabet's form of a text.
type mappedFinder struct{ finder }

func (f mappedFinder) find(dst []found, text []byte, s *scratch) []found {
	s.work.Step(len(text))
	before := cap(s.mapped)
	s.mapped = appendMapped(s.mapped[:0], text)
	work.Grown(s.work, before, s.mapped)
	n := len(dst)
	dst = f.finder.find(dst, s.mapped, s)
	// A character of the alphabet is a byte of the text.
	at, raw := 0, int32(0)
	for i := n; i < len(dst); i++ {
		dst[i].start = raw
		for ; at < int(dst[i].end); at++ {
			if utf8.RuneStart(s.mapped[at]) {
				raw++
			}
		}
		dst[i].end = raw
	}
	return dst
}

// behavior is the treatment of the matches of a Split.
type behavior uint8

const (
	isolated behavior = iota
	dropped           // "Removed"
	contiguous
	withPrevious
	withNext
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": dropped, "Contiguous": contiguous,
	"MergedWithPrevious": withPrevious, "MergedWithNext": withNext,
}

// preTokenizer is one step: it replaces the pieces in s, and if necessary the text.
type preTokenizer interface {
	split(s *scratch)
}

type splitter struct {
	finder   finder
	behavior behavior
	invert   bool
}

func (p splitter) split(s *scratch) {
	out, steps := s.spare[:0], 0
	for _, sp := range s.spans {
		pieces := cap(out)
		s.found = p.finder.find(s.found[:0], s.text[sp.start:sp.end], s)
		if steps += 1 + len(s.found)/2; steps > wordsCharged {
			s.work.Step(steps)
			steps = 0
		}
		if p.invert {
			for i := range s.found {
				s.found[i].match = !s.found[i].match
			}
		}
		first := len(out)
		out = p.behavior.fold(out, s.found, sp.start)
		if first < len(out) && out[first].start == sp.start {
			out[first].lead = sp.lead
		}
		work.Grown(s.work, pieces, out)
	}
	s.work.Step(steps)
	s.spans, s.spare = out, s.spans
}

// fold appends the pieces made of the parts, moved by offset.
func (b behavior) fold(out []span, parts []found, offset int32) []span {
	first := len(out)
	before := false // was the part before a match?
	if b == withNext {
		for i := len(parts) - 1; i >= 0; i-- {
			f := parts[i]
			if f.match && !before && len(out) > first {
				out[len(out)-1].start = offset + f.start
			} else {
				out = append(out, span{start: offset + f.start, end: offset + f.end})
			}
			before = f.match
		}
		for i, j := first, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
		return out
	}
	for _, f := range parts {
		join := false
		switch b {
		case dropped:
			if f.match {
				continue
			}
		case contiguous:
			join = f.match == before
		case withPrevious:
			join = f.match && !before
		}
		if join && len(out) > first {
			out[len(out)-1].end = offset + f.end
		} else {
			out = append(out, span{start: offset + f.start, end: offset + f.end})
		}
		before = f.match
	}
	return out
}

// prefixer is ByteLevel's add_prefix_space: each piece begins with a space.
type prefixer struct{}

func (prefixer) split(s *scratch) {
	s.rewrite(func(dst, piece []byte, _ bool) []byte {
		if piece[0] != ' ' {
			dst = append(dst, ' ')
		}
		return append(dst, piece...)
	})
}

// metaspace replaces spaces by its mark, and puts a mark before each piece (or before the
// first alone). A later step splits the pieces.
type metaspace struct {
	mark          []byte
	always, first bool
}

func (p metaspace) split(s *scratch) {
	s.rewrite(func(dst, piece []byte, lead bool) []byte {
		if p.always || p.first && lead {
			if piece[0] != ' ' && !bytes.HasPrefix(piece, p.mark) {
				dst = append(dst, p.mark...)
			}
		}
		for {
			i := bytes.IndexByte(piece, ' ')
			if i < 0 {
				return append(dst, piece...)
			}
			dst = append(append(dst, piece[:i]...), p.mark...)
			piece = piece[i+1:]
		}
	})
}

// rewrite replaces the text piece by piece.
func (s *scratch) rewrite(piece func(dst, piece []byte, lead bool) []byte) {
	out := s.rewritten[:0]
	for i, sp := range s.spans {
		start, before := int32(len(out)), cap(out)
		s.work.Step(2 + int(sp.end-sp.start)/4)
		out = piece(out, s.text[sp.start:sp.end], sp.lead)
		work.Grown(s.work, before, out)
		s.spans[i].start, s.spans[i].end = start, int32(len(out))
	}
	// An earlier rewrite may own the text: keep both buffers.
	s.rewritten, s.written = s.written, out
	s.text = out
}

// gpt2 is the expression by which ByteLevel splits by default.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// addPreTokenizer appends the steps of a pre_tokenizer tree.
func (t *Tokenizer) addPreTokenizer(raw []byte, depth int) error {
	c, err := parseComponent(raw, "pre_tokenizer")
	if err != nil || c == nil {
		return err
	}
	if depth > maxNesting {
		return fmt.Errorf("the pre_tokenizer is nested deeper than %d", maxNesting)
	}
	add := func(f finder, b behavior, invert bool) {
		if t.model.byteLevel {
			f = mappedFinder{f}
		}
		t.pre = append(t.pre, splitter{f, b, invert})
	}
	one := func(r rune) finder { return setFinder{ucd.NewSet([]ucd.Range{{Lo: r, Hi: r}})} }
	switch c.Type {
	case "Sequence":
		for _, sub := range c.Pretokenizers {
			if err := t.addPreTokenizer(sub, depth+1); err != nil {
				return err
			}
		}
	case "Split":
		f, b, err := newSplit(t.loading, c)
		if err != nil {
			return err
		}
		add(f, b, c.Invert)
	case "ByteLevel":
		return t.addByteLevel(c)
	case "Metaspace":
		return t.addMetaspace(c)
	case "Digits":
		b := contiguous
		if c.Individual {
			b = isolated
		}
		add(setFinder{classSet("rust_digit")}, b, false)
	case "Punctuation":
		b, ok := behaviors[c.Behavior]
		if c.Behavior != "" && !ok {
			return fmt.Errorf("the pre-tokenizer Punctuation has the unknown behavior %q", c.Behavior)
		}
		add(setFinder{classSet("rust_punct")}, b, false)
	case "WhitespaceSplit":
		add(setFinder{rustSpace()}, dropped, false)
	case "Whitespace":
		add(wordFinder{}, dropped, true)
	case "BertPreTokenizer":
		add(setFinder{rustSpace()}, dropped, false)
		add(setFinder{classSet("rust_punct")}, isolated, false)
	case "CharDelimiterSplit":
		r, n := utf8.DecodeRuneInString(c.Delimiter)
		if n == 0 || n != len(c.Delimiter) {
			return fmt.Errorf("the pre-tokenizer %s has the delimiter %q, not one character", c.Type, c.Delimiter)
		}
		add(one(r), dropped, false)
	default:
		return fmt.Errorf("the pre-tokenizer %q is not supported", c.Type)
	}
	return nil
}

func newSplit(b *work.Budget, c *component) (finder, behavior, error) {
	behaves, ok := behaviors[c.Behavior]
	if !ok {
		return nil, 0, fmt.Errorf("the pre-tokenizer Split has the unknown behavior %q", c.Behavior)
	}
	if c.Pattern == nil || (c.Pattern.String == nil) == (c.Pattern.Regex == nil) {
		return nil, 0, fmt.Errorf("the pre-tokenizer Split needs a pattern, String or Regex")
	}
	if c.Pattern.String != nil {
		if *c.Pattern.String == "" {
			return nil, 0, fmt.Errorf("the pre-tokenizer Split with an empty pattern is not supported")
		}
		return textFinder{[]byte(*c.Pattern.String)}, behaves, nil
	}
	re, err := onig.Compile(b, *c.Pattern.Regex)
	if err != nil {
		return nil, 0, fmt.Errorf("the pre-tokenizer Split: %w", err)
	}
	return regexFinder{re}, behaves, nil
}

// addByteLevel adds the splitting half of ByteLevel. The other half writes bytes as
// characters: this package needs none, because its vocabulary has bytes.
func (t *Tokenizer) addByteLevel(c *component) error {
	if t.model.byteLevel {
		return fmt.Errorf("the pre-tokenizer ByteLevel twice in a row is not supported")
	}
	if c.AddPrefixSpace == nil {
		return fmt.Errorf("the pre-tokenizer ByteLevel does not say add_prefix_space")
	}
	if *c.AddPrefixSpace {
		t.pre = append(t.pre, prefixer{})
	}
	if c.UseRegex == nil || *c.UseRegex {
		re, err := onig.Compile(nil, gpt2)
		if err != nil {
			return err
		}
		t.pre = append(t.pre, splitter{regexFinder{re}, isolated, false})
	}
	t.model.byteLevel = true
	return nil
}

func (t *Tokenizer) addMetaspace(c *component) error {
	r, n := utf8.DecodeRuneInString(c.Replacement)
	if n == 0 || n != len(c.Replacement) {
		return fmt.Errorf("the pre-tokenizer Metaspace has the replacement %q, not one character", c.Replacement)
	}
	scheme := c.PrependScheme
	if scheme == "" {
		scheme = "always"
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		if scheme != "never" && c.PrependScheme != "" {
			return fmt.Errorf("the pre-tokenizer Metaspace contradicts itself: prepend_scheme %q without add_prefix_space", scheme)
		}
		scheme = "never"
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return fmt.Errorf("the pre-tokenizer Metaspace has the unknown prepend_scheme %q", scheme)
	}
	if t.model.byteLevel || len(t.pre) > 0 && scheme == "first" {
		return fmt.Errorf("the pre-tokenizer Metaspace after others is not supported")
	}
	if scheme == "first" && t.moves {
		return fmt.Errorf("the pre-tokenizer Metaspace with prepend_scheme first is not supported after a normalizer that deletes text")
	}
	t.pre = append(t.pre, metaspace{[]byte(c.Replacement), scheme == "always", scheme == "first"})
	if c.Split == nil || *c.Split {
		f := setFinder{ucd.NewSet([]ucd.Range{{Lo: r, Hi: r}})}
		t.pre = append(t.pre, splitter{f, withNext, false})
	}
	return nil
}
