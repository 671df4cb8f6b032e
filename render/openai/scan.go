package openai

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"warmroute/render/internal/jsontext"
	"warmroute/render/work"
)

// MaxDepth bounds nesting. Python's own limit is about 1,000 frames; no prompt
// comes near either, and the scanner recurses.
const MaxDepth = 512

// MaxKeys bounds the keys of one object: the scanner sorts them at its end. No real
// logit_bias has so many tokens.
const MaxKeys = 1 << 16

// scanner walks one body, and charges its budget for the bytes that it reads. Every
// method that moves returns "" or the reason to stop; after a reason the position is
// meaningless.
type scanner struct {
	b      []byte
	i      int
	budget *work.Budget
	// unlimited is the budget if the caller has none.
	unlimited work.Budget
	// charged and chargedNodes are i and the number of nodes at the last charge.
	charged, chargedNodes int
	depth                 int
	key                   int      // begin of the last key; a field of the body finds its own there
	keys                  []uint64 // hashes of the keys of the open objects
	watch                 bool     // inside messages: look at content parts for media
	media                 bool     // a content part is not text

	structure // of the route's array of messages, while the scanner steps over it
}

// window is the number of bytes between two charges, about 50 µs. A long string, white space
// or list of ids is one charge, and its reader looks at the budget's context meanwhile.
const window = 64 << 10

// charge charges for the bytes and nodes since the last charge. A step reads eight bytes of
// values.
func (s *scanner) charge() {
	s.budget.Step((s.i - s.charged) / 8)
	s.budget.Memory(nodeBytes * (len(s.nodes) - s.chargedNodes))
	s.charged, s.chargedNodes = s.i, len(s.nodes)
}

func (s *scanner) space() { s.i = jsontext.Space(s.b, s.i) }

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// problems are the reasons by the lexer's problems.
var problems = [...]Reason{jsontext.Syntax: UnreadableJSON, jsontext.UTF8: InvalidUTF8, jsontext.Surrogate: LoneSurrogate}

// text reads the string whose opening quote is the current byte. It returns the bytes
// between the quotes, and whether they have escapes.
func (s *scanner) text() (raw []byte, escaped bool, why Reason) {
	at := len(s.gaps)
	var gaps *jsontext.Gaps
	if s.keep {
		gaps = &s.gaps
	}
	var (
		end     int
		problem jsontext.Problem
	)
	if len(s.b) < jsontext.LongText {
		end, escaped, problem = jsontext.String(s.b, s.i, gaps)
	} else {
		end, escaped, problem = jsontext.LongString(s.b, s.i, gaps, s.budget)
	}
	if problem != jsontext.OK {
		return nil, false, problems[problem]
	}
	raw = s.b[s.i+1 : end-1]
	if escaped {
		s.leaf(jsontext.Escaped, end, at)
	} else {
		s.leaf(jsontext.Text, end, 0)
	}
	return raw, escaped, ""
}

// value steps over a value of any type.
func (s *scanner) value() Reason {
	if s.i-s.charged > window {
		s.charge()
	}
	switch c := s.peek(); {
	case c == '"':
		_, _, why := s.text()
		return why
	case c == '{':
		return s.object(nil)
	case c == '[':
		if end, _, ok := naturals(s.b, s.i, nil, s.budget); ok && s.depth < MaxDepth {
			s.leaf(jsontext.Other, end, 0)
			return ""
		}
		return s.array(nil)
	case c == '-' || '0' <= c && c <= '9':
		end, _, ok := jsontext.Number(s.b, s.i)
		if !ok {
			return UnreadableJSON
		}
		s.leaf(jsontext.Other, end, 0)
		return ""
	}
	for _, word := range [...]string{"true", "false", "null", "NaN", "Infinity"} {
		if jsontext.Word(s.b, s.i, word) {
			s.leaf(jsontext.Other, s.i+len(word), 0)
			return ""
		}
	}
	return UnreadableJSON
}

// naturals reads the array at all[i] if its elements are natural numbers of at most nine
// digits, as token ids are: it returns the array's end, and ids with the numbers behind
// them, or nil if ids is. It is three times as fast as array, and a prompt of token ids is
// most of its body.
func naturals(all []byte, i int, ids []uint32, budget *work.Budget) (end int, with []uint32, ok bool) {
	keep := ids != nil
	b := all[:min(len(all), i+window)]
	for i++; ; i++ {
		i, ids = someNaturals(b, i, ids)
		from := i
		if i < len(b) && b[i] == ' ' {
			i++
		}
		start, n := i, uint32(0)
		for i < len(b) && b[i]-'0' <= 9 {
			n = n*10 + uint32(b[i]-'0')
			i++
		}
		digits := i - start
		if digits <= 9 && i == len(b) && len(b) < len(all) { // the number may go on
			budget.Pause()
			b, i = all[:min(len(all), from+window)], from-1
			continue
		}
		if digits == 0 || digits > 9 || i == len(b) || b[start] == '0' && digits > 1 {
			return 0, ids, false
		}
		if keep {
			ids = append(ids, n)
		}
		if b[i] == ']' {
			return i + 1, ids, true
		}
		if b[i] != ',' {
			return 0, ids, false
		}
	}
}

// someNaturals reads numbers of at most seven digits with a comma behind each, while eight
// bytes are left: all digits of a number at once, which is twice as fast as one by one. It
// returns the position behind the last comma.
func someNaturals(b []byte, i int, ids []uint32) (int, []uint32) {
	keep := ids != nil
	for {
		at := i
		if at < len(b) && b[at] == ' ' {
			at++
		}
		if at+8 > len(b) {
			return i, ids
		}
		// The high bits of other are set for bytes that are no digits, up to the first of them.
		v := binary.LittleEndian.Uint64(b[at:])
		other := ((v + 0x46*eachByte) | (v - '0'*eachByte)) & (0x80 * eachByte)
		bit := bits.TrailingZeros64(other) &^ 7
		if bit == 0 || bit == 64 || byte(v>>bit) != ',' || byte(v) == '0' && bit > 8 {
			return i, ids
		}
		i = at + bit/8 + 1
		if keep {
			v = v & (0x0f * eachByte) << (64 - bit) // zeros before the digits
			v = v * (10<<8 + 1) >> 8 & 0x00ff00ff00ff00ff
			v = v * (100<<16 + 1) >> 16 & 0x0000ffff0000ffff
			ids = append(ids, uint32(v*(10_000<<32+1)>>32))
		}
	}
}

// eachByte times a byte has it in all eight bytes.
const eachByte = 0x0101010101010101

// array steps over an array. It calls each at every element, and each must step over it;
// nil: array does.
func (s *scanner) array(each func() Reason) Reason {
	if s.depth++; s.depth > MaxDepth {
		return TooDeep
	}
	at := s.open(jsontext.Array)
	s.i++
	if s.peek() == ']' {
		s.close(at)
		return ""
	}
	return s.elements(at, each)
}

// elements steps over the elements of an array from the current element on, and over its
// end.
func (s *scanner) elements(at int, each func() Reason) Reason {
	for {
		var why Reason
		if s.space(); each == nil {
			why = s.value()
		} else {
			why = each()
		}
		if why != "" {
			return why
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.close(at)
			return ""
		default:
			return UnreadableJSON
		}
	}
}

// object steps over an object. It calls field at every value with the key (unescaped,
// valid for the call), and field must step over the value; nil: object does.
func (s *scanner) object(field func(key []byte) Reason) Reason {
	if s.depth++; s.depth > MaxDepth {
		return TooDeep
	}
	at := s.open(jsontext.Object)
	s.i++
	if s.peek() == '}' {
		s.close(at)
		return ""
	}
	first := len(s.keys)
	for {
		if s.peek() != '"' {
			return UnreadableJSON
		}
		s.key = s.i
		key, escaped, why := s.text()
		if why != "" {
			return why
		}
		if escaped {
			key = s.unescape(key)
		}
		if len(s.keys)-first == MaxKeys {
			return TooWide
		}
		s.keys = append(s.keys, xxhash.Sum64(key))
		if s.peek() != ':' {
			return UnreadableJSON
		}
		s.i++
		s.space()
		switch {
		case field != nil:
			why = field(key)
		case s.watch:
			why = s.watched(key)
		default:
			why = s.value()
		}
		if why != "" {
			return why
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.close(at)
			return s.closeKeys(first)
		default:
			return UnreadableJSON
		}
	}
}

// unescape returns the text of a string with escapes; raw are the bytes between the quotes.
func (s *scanner) unescape(raw []byte) []byte {
	s.budget.Make(len(raw))
	return jsontext.AppendText(nil, raw, s.budget)
}

// closeKeys removes the keys of the object that ends, and refuses equal keys. A
// collision of 64-bit hashes only costs its sender a hint.
func (s *scanner) closeKeys(first int) Reason {
	keys := s.keys[first:]
	s.keys = s.keys[:first]
	const few = 16 // up to it, comparing all pairs is cheaper than sorting
	if len(keys) <= few {
		for i, k := range keys {
			if slices.Contains(keys[:i], k) {
				return DuplicateKey
			}
		}
		return ""
	}
	s.budget.Step(len(keys))
	slices.Sort(keys)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return DuplicateKey
		}
	}
	return ""
}

// watched steps over one field of an object inside messages, and sets media if the field
// is media.
func (s *scanner) watched(key []byte) Reason {
	switch string(key) {
	case "type":
		if s.peek() != '"' {
			return s.value()
		}
		raw, escaped, why := s.text()
		if escaped {
			raw = s.unescape(raw)
		}
		s.media = s.media || isMedia(raw)
		return why
	case "input", "arguments", "tools", "parameters":
		// The arguments of a tool call: their whole content is text to the model.
		s.watch = false
		why := s.value()
		s.watch = true
		return why
	}
	if isMedia(key) {
		s.media = true
	}
	return s.value()
}

// isMedia reports whether a content part's type, or a key in place of a missing type, means
// something else than text: vLLM's own names (MM_PARSER_MAP in chat_utils), the Responses
// API's and Anthropic's.
func isMedia(name []byte) bool {
	switch string(name) {
	case "image_url", "image_pil", "image_embeds", "input_image", "image",
		"audio_url", "audio_embeds", "input_audio",
		"video_url", "video_embeds", "prompt_embeds",
		"file", "input_file", "document":
		return true
	}
	return false
}
