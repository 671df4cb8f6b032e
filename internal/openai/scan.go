package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// MaxDepth bounds nesting. Python's own limit is about 1,000 frames; no prompt
// comes near either, and the scanner recurses.
const MaxDepth = 512

// scanner walks one body. Every method that moves returns "" or the reason to
// stop; after a reason the position is meaningless.
type scanner struct {
	b     []byte
	i     int
	depth int
	keys  []uint64 // hashes of the keys of the objects that are open
	watch bool     // inside messages: look at content parts for media
	media bool     // a content part was not text
}

// Masks for looking at eight bytes at once.
const (
	low7   = 0x0101010101010101
	high   = 0x8080808080808080
	quotes = 0x2222222222222222
	slashs = 0x5c5c5c5c5c5c5c5c
	spaces = 0x2020202020202020
)

// special has the high bit of every byte that is a quote, a backslash, a
// control character or not ASCII. A borrow may also set it in a byte above such
// a one, so only the lowest tells which.
func special(x uint64) uint64 {
	q, s := x^quotes, x^slashs
	return ((x - spaces) | x | (q - low7) | (s - low7)) & high
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// text reads the string whose opening quote is the current byte and returns
// what is between the quotes, as it stands, and whether it has escapes.
func (s *scanner) text() (raw []byte, escaped bool, why Reason) {
	s.i++
	start, ascii := s.i, true
	for {
		for s.i+8 <= len(s.b) {
			found := special(binary.LittleEndian.Uint64(s.b[s.i:]))
			if found != 0 {
				s.i += bits.TrailingZeros64(found) / 8
				break
			}
			s.i += 8
		}
		if s.i >= len(s.b) {
			return nil, false, UnreadableJSON
		}
		switch c := s.b[s.i]; {
		case c == '"':
			raw = s.b[start:s.i]
			s.i++
			if !ascii && !utf8.Valid(raw) {
				return nil, false, InvalidUTF8
			}
			return raw, escaped, ""
		case c == '\\':
			escaped = true
			if why := s.escape(); why != "" {
				return nil, false, why
			}
		case c < 0x20:
			return nil, false, UnreadableJSON
		case c >= utf8.RuneSelf:
			// Non-ASCII text comes in runs: skip to the run's end by bytes.
			ascii = false
			for s.i < len(s.b) && s.b[s.i] >= utf8.RuneSelf {
				s.i++
			}
		default:
			s.i++
		}
	}
}

// escape steps over one escape sequence, or over both halves of a surrogate pair.
func (s *scanner) escape() Reason {
	if s.i+1 >= len(s.b) {
		return UnreadableJSON
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return ""
	case 'u':
	default:
		return UnreadableJSON
	}
	r, ok := hex4(s.b, s.i+2)
	if !ok {
		return UnreadableJSON
	}
	s.i += 6
	switch {
	case r < 0xd800 || r > 0xdfff:
		return ""
	case r < 0xdc00 && s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u':
		if low, ok := hex4(s.b, s.i+2); ok && low >= 0xdc00 && low <= 0xdfff {
			s.i += 6
			return ""
		}
	}
	return LoneSurrogate
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendText appends the text a raw string stands for. raw was scanned.
func appendText(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			n := bytes.IndexByte(raw[i:], '\\')
			if n < 0 {
				return append(dst, raw[i:]...)
			}
			dst = append(dst, raw[i:i+n]...)
			i += n
			continue
		}
		switch c := raw[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(raw, i+2)
			if r >= 0xd800 && r < 0xdc00 {
				low, _ := hex4(raw, i+8)
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
			i += 4
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// value steps over any one value.
func (s *scanner) value() Reason {
	switch c := s.peek(); {
	case c == '"':
		_, _, why := s.text()
		return why
	case c == '{':
		return s.object(nil)
	case c == '[':
		if s.depth < MaxDepth && s.naturals(nil) {
			return ""
		}
		return s.array(nil)
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, word := range [...]string{"true", "false", "null", "NaN", "Infinity"} {
		if s.word(word) {
			return ""
		}
	}
	return UnreadableJSON
}

func (s *scanner) word(w string) bool {
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

func (s *scanner) number() Reason {
	if s.b[s.i] == '-' {
		s.i++
		if s.word("Infinity") {
			return ""
		}
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return UnreadableJSON
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return UnreadableJSON
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return UnreadableJSON
		}
	}
	return ""
}

// naturals steps over an array of plain natural numbers of at most nine digits,
// as token ids are, and appends them to ids unless that is nil. For any other
// array it returns false, having moved nowhere and appended anything. A prompt
// of token ids is most of its body, and read three times as fast so.
func (s *scanner) naturals(ids *[]uint32) bool {
	b := s.b
	for i := s.i + 1; ; i++ {
		if i < len(b) && b[i] == ' ' {
			i++
		}
		start, n := i, uint32(0)
		for i < len(b) && b[i]-'0' <= 9 {
			n = n*10 + uint32(b[i]-'0')
			i++
		}
		digits := i - start
		if digits == 0 || digits > 9 || i == len(b) || b[start] == '0' && digits > 1 {
			return false
		}
		if ids != nil {
			*ids = append(*ids, n)
		}
		if b[i] == ']' {
			s.i = i + 1
			return true
		}
		if b[i] != ',' {
			return false
		}
	}
}

// array steps over an array. each is called at every element and must step over
// it; nil skips.
func (s *scanner) array(each func() Reason) Reason {
	if s.depth++; s.depth > MaxDepth {
		return TooDeep
	}
	s.i++
	if s.peek() == ']' {
		s.i++
		s.depth--
		return ""
	}
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
			s.i++
			s.depth--
			return ""
		default:
			return UnreadableJSON
		}
	}
}

// object steps over an object. field is called at every value with its key
// (unescaped, valid for the call) and must step over the value; nil skips.
func (s *scanner) object(field func(key []byte) Reason) Reason {
	if s.depth++; s.depth > MaxDepth {
		return TooDeep
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		s.depth--
		return ""
	}
	first := len(s.keys)
	for {
		if s.peek() != '"' {
			return UnreadableJSON
		}
		key, escaped, why := s.text()
		if why != "" {
			return why
		}
		if escaped {
			key = appendText(nil, key)
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
			s.i++
			s.depth--
			return s.closeKeys(first)
		default:
			return UnreadableJSON
		}
	}
}

// closeKeys forgets the keys of the object that ends and refuses equal ones. A
// collision of 64-bit hashes costs its sender a hint and nobody else anything.
func (s *scanner) closeKeys(first int) Reason {
	keys := s.keys[first:]
	s.keys = s.keys[:first]
	const few = 16 // below it, comparing all pairs is cheaper than sorting
	if len(keys) <= few {
		for i, k := range keys {
			if slices.Contains(keys[:i], k) {
				return DuplicateKey
			}
		}
		return ""
	}
	slices.Sort(keys)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return DuplicateKey
		}
	}
	return ""
}

// watched steps over one field of an object inside messages and notes media.
func (s *scanner) watched(key []byte) Reason {
	switch string(key) {
	case "type":
		if s.peek() != '"' {
			return s.value()
		}
		raw, escaped, why := s.text()
		if escaped {
			raw = appendText(nil, raw)
		}
		s.media = s.media || isMedia(raw)
		return why
	case "input", "arguments", "tools", "parameters":
		// A tool call's own arguments: what they hold is text to the model.
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

// isMedia reports whether a content part's type, or a key that stands in for a
// missing type, means something else than text: vLLM's own names
// (MM_PARSER_MAP in chat_utils), the Responses API's and Anthropic's.
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
