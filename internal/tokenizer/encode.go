package tokenizer

import (
	"sync"
	"unicode/utf8"

	"warmroute/internal/tokenizer/onig"
	"warmroute/internal/tokenizer/ucd"
)

// Tokenizer encodes text. Load, LoadFile and Parse make one; it is immutable
// but for its word cache.
type Tokenizer struct {
	normalizers []normalizer
	// moves: a normalizer may delete text at the start, which makes "the first
	// piece" mean something else.
	moves       bool
	pre         []preTokenizer
	model       bpe
	modelSize   int
	foreign     map[string]uint32
	raw         matcher // added tokens found in the text as it is
	afterNormal matcher // those found once it is normalized
	added       map[string]uint32
	within      bool // added tokens are found inside pieces, too
	before      []uint32
	after       []uint32
	templated   bool
	cuts        bool   // Store may cut at added tokens
	anchor      anchor // if there is one, it cuts at those that begin with it only
	cache       *wordCache
	config      Config
	pool        sync.Pool
}

// scratch is the memory one goroutine encodes in.
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
	work               work
	store              storeScratch
}

// scratchKept bounds the memory a pooled scratch keeps, in bytes of text: a
// rare huge text must not stay for ever.
const scratchKept = 4 << 20

func (t *Tokenizer) scratch() *scratch {
	if s, ok := t.pool.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

func (t *Tokenizer) release(s *scratch, size int) {
	if size <= scratchKept {
		t.pool.Put(s)
	}
}

// Append appends the ids of text to dst, with the special tokens of the
// post-processor around them if addSpecial. It is exact for valid UTF-8; each
// invalid byte counts as U+FFFD.
func (t *Tokenizer) Append(dst []uint32, text []byte, addSpecial bool) []uint32 {
	s := t.scratch()
	if addSpecial {
		dst = append(dst, t.before...)
	}
	dst = t.encode(dst, s.utf8(text), true, s)
	if addSpecial {
		dst = append(dst, t.after...)
	}
	t.release(s, len(text))
	return dst
}

// utf8 replaces each invalid byte by U+FFFD.
func (s *scratch) utf8(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	s.valid = s.valid[:0]
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		s.valid = utf8.AppendRune(s.valid, r)
		text = text[n:]
	}
	return s.valid
}

// encode appends the ids of text. start: the text begins the prompt.
func (t *Tokenizer) encode(dst []uint32, text []byte, start bool, s *scratch) []uint32 {
	return t.cut(dst, &t.raw, text, start, s, (*Tokenizer).piece)
}

// piece encodes text that holds no added token as it is.
func (t *Tokenizer) piece(dst []uint32, text []byte, start bool, s *scratch) []uint32 {
	return t.cut(dst, &t.afterNormal, t.normalized(text, s), start, s, (*Tokenizer).words)
}

// cut appends the ids of the added tokens that m finds in text, and what rest makes
// of the text between them.
func (t *Tokenizer) cut(dst []uint32, m *matcher, text []byte, start bool, s *scratch,
	rest func(t *Tokenizer, dst []uint32, text []byte, start bool, s *scratch) []uint32) []uint32 {
	c := cutter{m: m, text: text}
	for {
		p, ok := c.next()
		switch {
		case !ok:
			return dst
		case p.token != nil:
			dst = append(dst, p.token.id)
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
	for _, sp := range s.spans {
		if sp.start < sp.end {
			dst = t.model.append(dst, s.text[sp.start:sp.end], &s.work, t.cache)
		}
	}
	return dst
}

// TokenID returns the id of a token by its text, as the reference's
// token_to_id: an added token's or the model's own.
func (t *Tokenizer) TokenID(text string) (uint32, bool) {
	if id, ok := t.added[text]; ok {
		return id, true
	}
	return t.modelID(text)
}
