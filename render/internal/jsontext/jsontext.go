package jsontext

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"

	"warmroute/render/work"
)

// window is the number of bytes of one value between two looks at the context, about
// 0.1 to 0.4 ms.
const window = 256 << 10

// Problem is the reason why a text cannot be read.
type Problem uint8

// The problems; OK is none.
const (
	OK        Problem = iota
	Syntax            // not JSON
	UTF8              // a string is not valid UTF-8
	Surrogate         // half of a surrogate pair stands alone
)

// Masks for looking at eight bytes at once.
const (
	ones   = 0x0101010101010101
	high   = ones * 0x80
	quotes = ones * '"'
	slashs = ones * '\\'
	blanks = ones * ' '
)

// mostSpace bounds the white space between two tokens, in bytes; a text with more is
// refused.
const mostSpace = 1 << 20

// Space returns the index of the first byte from i on that is not white space, at most
// i+mostSpace.
func Space(b []byte, i int) int {
	b = b[:min(len(b), i+mostSpace)]
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// String reads the string that opens at b[i]. It returns the index behind the closing
// quote, and whether the string has escapes. A control character is a syntax error, as
// in Python. The gaps of a string with escapes are appended to gaps, unless gaps is
// nil.
func String(b []byte, i int, gaps *Gaps) (end int, escaped bool, p Problem) {
	i++
	start, behind, ascii := i, i, true
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			q, s := w^quotes, w^slashs
			// found has the high bit of each byte that is a quote, a backslash, a
			// control character or not ASCII. A borrow may set further bits above the
			// lowest, so only the lowest is certain.
			if found := ((w - blanks) | w | (q - ones) | (s - ones)) & high; found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return i, escaped, Syntax
		}
		switch c := b[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(b[start:i]) {
				return i, escaped, UTF8
			}
			if escaped && gaps != nil {
				gaps.add(i - behind)
			}
			return i + 1, escaped, OK
		case c == '\\':
			escaped = true
			if gaps != nil {
				gaps.add(i - behind)
			}
			if i, p = escape(b, i); p != OK {
				return i, escaped, p
			}
			behind = i
		case c < ' ':
			return i, escaped, Syntax
		case c >= utf8.RuneSelf:
			ascii = false // bytes outside ASCII come in runs
			for i < len(b) && b[i] >= utf8.RuneSelf {
				i++
			}
		default:
			i++
		}
	}
}

// LongText is the size in bytes from which on a text's strings are read by LongString.
const LongText = 4 * window

// LongString is String, but looks at the budget's context while it reads a long string;
// see work.Budget.Pause. It has a loop of its own: with a look at the context in
// String's loop, short strings take 15 % longer.
func LongString(b []byte, i int, gaps *Gaps, budget *work.Budget) (end int, escaped bool, p Problem) {
	head, known := b[:min(len(b), i+window)], 0
	if gaps != nil {
		known = len(*gaps)
	}
	end, escaped, p = String(head, i, gaps)
	if p == OK || len(head) == len(b) || end < len(head)-longestEscape {
		return end, escaped, p
	}
	if gaps != nil {
		*gaps = (*gaps)[:known]
	}
	i++
	start, behind, next := i, i, i+window
	for escaped = false; i < len(b); {
		if i >= next {
			budget.Pause()
			next = i + window
		}
		switch c := b[i]; {
		case c == '"':
			if !valid(b[start:i], budget) {
				return i, escaped, UTF8
			}
			if escaped && gaps != nil {
				gaps.add(i - behind)
			}
			return i + 1, escaped, OK
		case c == '\\':
			escaped = true
			if gaps != nil {
				gaps.add(i - behind)
			}
			if i, p = escape(b, i); p != OK {
				return i, escaped, p
			}
			behind = i
		case c < ' ':
			return i, escaped, Syntax
		default:
			i = plain(b[:min(len(b), next)], i+1)
		}
	}
	return i, escaped, Syntax
}

// longestEscape is the length of an escaped surrogate pair, in bytes.
const longestEscape = 12

// plain returns the index of the first byte from i on that is a quote, a backslash or a
// control character.
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		q, s := w^quotes, w^slashs
		if found := ((w-blanks)&^w | (q-ones)&^q | (s-ones)&^s) & high; found != 0 {
			return i + bits.TrailingZeros64(found)/8 // the lowest bit is certain
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// valid is utf8.Valid, with looks at the context.
func valid(text []byte, budget *work.Budget) bool {
	for len(text) > window {
		end := window
		for end > window-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		if !utf8.Valid(text[:end]) {
			return false
		}
		text = text[end:]
		budget.Pause()
	}
	return utf8.Valid(text)
}

// escapes maps the byte behind a backslash to the character of the escape. The bytes of
// longer escapes and of no escape map to 0.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape returns the index behind the escape at b[i]. A surrogate pair is one escape.
func escape(b []byte, i int) (int, Problem) {
	if i+1 >= len(b) {
		return i, Syntax
	}
	if escapes[b[i+1]] != 0 {
		return i + 2, OK
	}
	r, ok := hex4(b, i+2)
	if b[i+1] != 'u' || !ok {
		return i, Syntax
	}
	i += 6
	switch {
	case r < 0xd800 || r > 0xdfff:
		return i, OK
	case r > 0xdbff || i+1 >= len(b) || b[i] != '\\' || b[i+1] != 'u':
		return i, Surrogate
	}
	low, ok := hex4(b, i+2)
	switch {
	case !ok:
		return i, Syntax
	case low < 0xdc00 || low > 0xdfff:
		return i, Surrogate
	}
	return i + 6, OK
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

// AppendText appends the text of a string; all is the inside of a string that String
// has read.
func AppendText(dst, all []byte, budget *work.Budget) []byte {
	// The loop copies eight bytes at a time, and may keep fewer.
	dst = slices.Grow(dst, len(all)+8)
	out, o, i := dst[:cap(dst)], len(dst), 0
	for {
		raw := all[:min(len(all), i+window)]
		for i < len(raw) {
			if i+8 <= len(raw) {
				w := binary.LittleEndian.Uint64(raw[i:])
				binary.LittleEndian.PutUint64(out[o:], w)
				s := w ^ slashs
				found := (s - ones) &^ s & high // the lowest bit is certain
				n := bits.TrailingZeros64(found) / 8
				i, o = i+n, o+n
				if found == 0 {
					continue
				}
			} else if raw[i] != '\\' {
				out[o] = raw[i]
				i, o = i+1, o+1
				continue
			}
			if c := escapes[all[i+1]]; c != 0 {
				out[o] = c
				i, o = i+2, o+1
				continue
			}
			var n int
			n, o = unicode(out, o, all[i:])
			i += n
		}
		if i >= len(all) {
			return out[:o]
		}
		budget.Pause()
	}
}

// Gaps holds the positions of the escapes of strings. A gap is a number of bytes: the
// bytes before a string's first escape, the bytes between two escapes, or the bytes
// behind the last. It is the sum of bytes of which the last alone is not 255.
type Gaps []byte

// gapsAtOnce is the number of gaps between two looks at the context: at most 1 MiB of
// text.
const gapsAtOnce = 4096

func (g *Gaps) add(gap int) {
	for ; gap >= 255; gap -= 255 {
		*g = append(*g, 255)
	}
	*g = append(*g, byte(gap))
}

// AppendTextAt is AppendText for a string whose gaps are the first of g.
func AppendTextAt(dst, raw []byte, g Gaps, budget *work.Budget) []byte {
	const most = 16 // bytes of one copy, of which fewer may be kept
	dst = slices.Grow(dst, len(raw)+most)
	out, o, i := dst[:cap(dst)], len(dst), 0
	for len(g) > 0 {
		part := g[:min(len(g), gapsAtOnce)]
		g = g[len(part):]
		for _, gap := range part {
			n := int(gap)
			if n <= most && i+most <= len(raw) {
				*(*[most]byte)(out[o:]) = *(*[most]byte)(raw[i:])
			} else {
				copy(out[o:], raw[i:i+n])
			}
			i, o = i+n, o+n
			switch {
			case gap == 255:
				continue
			case i == len(raw):
				return out[:o]
			}
			if c := escapes[raw[i+1]]; c != 0 {
				out[o] = c
				i, o = i+2, o+1
				continue
			}
			var n8 int
			n8, o = unicode(out, o, raw[i:])
			i += n8
		}
		budget.Pause()
	}
	return out[:o]
}

// unicode writes the character of the \u escape at the start of raw to out[o:]. It
// returns the length of the escape and the index in out behind the character.
func unicode(out []byte, o int, raw []byte) (read, next int) {
	r, _ := hex4(raw, 2)
	read = 6
	if r >= 0xd800 && r < 0xdc00 {
		low, _ := hex4(raw, 8)
		r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
		read = 12
	}
	return read, o + utf8.EncodeRune(out[o:], r)
}

// Word reports whether b[i:] begins with w.
func Word(b []byte, i int, w string) bool { return len(b)-i >= len(w) && string(b[i:i+len(w)]) == w }

// mostDigits bounds a run of digits; a text with a longer run is refused. Python
// refuses integers of 4,301 digits.
const mostDigits = 64 << 10

func digits(b []byte, i int) int {
	b = b[:min(len(b), i+mostDigits)]
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// Number returns the index behind the number, or -Infinity, at b[i]. Infinity and NaN
// are not ok here; see Word. float reports whether the number is -Infinity or has a
// fraction or an exponent.
func Number(b []byte, i int) (end int, float, ok bool) {
	if i < len(b) && b[i] == '-' {
		if i++; Word(b, i, "Infinity") {
			return i + len("Infinity"), true, true
		}
	}
	start := i
	if i = digits(b, i); i == start || b[start] == '0' && i > start+1 {
		return i, false, false
	}
	if i < len(b) && b[i] == '.' {
		float, start = true, i+1
		if i = digits(b, start); i == start {
			return i, true, false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		float = true
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = digits(b, i); i == start {
			return i, true, false
		}
	}
	return i, float, true
}

// Kind is the type of a node.
type Kind uint8

// The kinds of nodes.
const (
	Object  Kind = iota // its nodes are keys and values in turn
	Array               // its nodes are its elements
	Text                // a string without escapes
	Escaped             // a string with escapes
	Other               // a number, a word, or an array of numbers: readers parse its text
)

// Node is one value or one key of a JSON text. The nodes inside a value follow it.
type Node struct {
	Start, End uint32 // offsets of its text in the scanned text
	// More of an Object or Array is the number of nodes in it, itself included; More of
	// an Escaped is the offset of its gaps.
	More uint32
	Kind Kind
}

// Size returns the number of nodes of the value, itself included.
func (n *Node) Size() uint32 {
	if n.Kind <= Array {
		return n.More
	}
	return 1
}

// Stretch is the structure of consecutive values.
type Stretch struct {
	Nodes []Node
	Gaps  Gaps
}

// Bytes returns the memory of s in bytes.
func (s Stretch) Bytes() int64 { return 16*int64(len(s.Nodes)) + int64(len(s.Gaps)) }

// Each calls yield with the nodes of each value.
func (s Stretch) Each(yield func(value []Node) bool) {
	for nodes := s.Nodes; len(nodes) > 0; {
		size := nodes[0].Size()
		if !yield(nodes[:size]) {
			return
		}
		nodes = nodes[size:]
	}
}
