package tokenizer

import (
	"sync"
	"unicode/utf8"

	"warmroute/render/internal/onig"
	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

// Tokenizer encodes text. Load, LoadFile and Parse make one. Only its word cache changes.
type Tokenizer struct {
	normalizers []normalizer
	// moves: a normalizer may delete text at the start, so that another piece is the
	// first.
	moves       bool
	pre         []preTokenizer
	model       bpe
	modelSize   int
	foreign     map[string]uint32
	raw         matcher // finds added tokens in the text before normalization
	afterNormal matcher // finds added tokens in the normalized text
	added       map[string]uint32
	within      bool // ordinary pieces may contain added tokens
	before      []uint32
	after       []uint32
	templated   bool
	cuts        bool   // Store may cut at added tokens
	anchor      anchor // if ok, Store cuts only at tokens that begin with it
	cache       *wordCache
	config      Config
	loading     *work.Budget // the budget of making it; nil afterwards
	pool        sync.Pool
}

// scratch is the memory of one goroutine for encoding.
type scratch struct {
	norm               [2][]byte
	valid              []byte
	text               []byte
	rewritten, written []byte
	mapped             []byte
	spans, spare       []span
	found              []found
	machine            onig.Machine
	ucd                ucd.Scratch
	merger             merger
	work               *work.Budget
	unbounded          work.Budget // the budget of callers without one
	store              storeScratch
}

// scratchKept bounds the memory of a scratch in the pool, in bytes of text: the memory of
// a rare huge text must not stay for ever.
const scratchKept = 4 << 20

// scratch returns memory for encoding, whose user charges b.
func (t *Tokenizer) scratch(b *work.Budget) *scratch {
	s, ok := t.pool.Get().(*scratch)
	if !ok {
		s = &scratch{}
	}
	s.charge(b)
	return s
}

// charge makes b the budget of s; nil: a budget without limits.
func (s *scratch) charge(b *work.Budget) {
	if b == nil {
		b = &s.unbounded
	}
	s.work, s.merger.work = b, b
}

func (t *Tokenizer) release(s *scratch, size int) {
	s.work, s.merger.work = nil, nil
	s.machine.Forget()
	if size <= scratchKept {
		t.pool.Put(s)
	}
}

// Append appends the ids of text to dst, with the special tokens of the
// post-processor around them if addSpecial. Valid UTF-8 has the reference's ids; each
// invalid byte counts as U+FFFD. Append charges b (nil: nothing), and its caller catches
// b's end.
func (t *Tokenizer) Append(b *work.Budget, dst []uint32, text []byte, addSpecial bool) []uint32 {
	s := t.scratch(b)
	if addSpecial {
		dst = s.ids(dst, t.before)
	}
	dst = t.encode(dst, s.utf8(text), true, s)
	if addSpecial {
		dst = s.ids(dst, t.after)
	}
	t.release(s, len(text))
	return dst
}

// ids appends known ids, and charges for the copy.
func (s *scratch) ids(dst, more []uint32) []uint32 {
	s.work.Step(len(more) / 8)
	before := cap(dst)
	dst = append(dst, more...)
	work.Grown(s.work, before, dst)
	return dst
}

// utf8 replaces each invalid byte by U+FFFD.
func (s *scratch) utf8(text []byte) []byte {
	s.work.Step(len(text) / 16)
	if utf8.Valid(text) {
		return text
	}
	s.valid = s.valid[:0]
	before := cap(s.valid)
	for len(text) > 0 {
		s.work.Step(1)
		r, n := utf8.DecodeRune(text)
		s.valid = utf8.AppendRune(s.valid, r)
		text = text[n:]
	}
	work.Grown(s.work, before, s.valid)
	return s.valid
}

// encode appends the ids of text. start: the text begins the prompt.
func (t *Tokenizer) encode(dst []uint32, text []byte, start bool, s *scratch) []uint32 {
	return t.cut(dst, &t.raw, text, start, s, (*Tokenizer).piece)
}

// piece encodes a text that has no added token before normalization.
func (t *Tokenizer) piece(dst []uint32, text []byte, start bool, s *scratch) []uint32 {
	return t.cut(dst, &t.afterNormal, t.normalized(text, s), start, s, (*Tokenizer).words)
}

// cut appends the ids of the added tokens that m finds in text, and calls rest for the text
// between them.
func (t *Tokenizer) cut(dst []uint32, m *matcher, text []byte, start bool, s *scratch,
	rest func(t *Tokenizer, dst []uint32, text []byte, start bool, s *scratch) []uint32) []uint32 {
	c := cutter{m: m, text: text, work: s.work}
	for {
		p, ok := c.next()
		switch {
		case !ok:
			return dst
		case p.token != nil:
			dst = s.ids(dst, []uint32{p.token.id})
		default:
			dst = rest(t, dst, text[p.start:p.end], start && p.start == 0, s)
		}
	}
}

// words pre-tokenizes text and encodes each word.
func (t *Tokenizer) words(dst []uint32, text []byte, start bool, s *scratch) []uint32 {
	s.text = text
	s.spans = append(s.spans[:0], span{0, int32(len(text)), start})
	for _, p := range t.pre {
		p.split(s)
	}
	for spans := s.spans; len(spans) > 0; {
		some, before := spans[:min(len(spans), wordsCharged)], cap(dst)
		spans = spans[len(some):]
		s.work.Step(wordSteps*len(some) + int(some[len(some)-1].end-some[0].start)>>4)
		for _, sp := range some {
			if sp.start < sp.end {
				dst = t.model.append(dst, s.text[sp.start:sp.end], &s.merger, t.cache)
			}
		}
		work.Grown(s.work, before, dst)
	}
	return dst
}

// wordsCharged is the number of words in one charge.
const wordsCharged = 64

// TokenID returns the id of an added token, or of a token of the model, by its text, as the
// reference's token_to_id does.
func (t *Tokenizer) TokenID(text string) (uint32, bool) {
	if id, ok := t.added[text]; ok {
		return id, true
	}
	return t.modelID(text)
}
