package jsontext

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"

	"warmroute/render/work"
)

// window is how many bytes of one value are read between two looks at the context, about
// 0.1 to 0.4 ms.
const window = 256 << 10

// Problem states why a text cannot be read.
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

// mostSpace bounds the white space between two tokens: a text with more is refused.
const mostSpace = 1 << 20

// Space is the index of the first byte from i on that is no white space, or mostSpace
// bytes behind i.
func Space(b []byte, i int) int {
	b = b[:min(len(b), i+mostSpace)]
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// String reads the string that opens at b[i] and gives the index behind its closing
// quote, and whether it has escapes. Python takes control characters for an error.
// Where the escapes are is appended to gaps, unless that is nil or there are none.
func String(b []byte, i int, gaps *Gaps) (end int, escaped bool, p Problem) {
	i++
	start, behind, ascii := i, i, true
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			q, s := w^quotes, w^slashs
			// The high bit of each byte that is a quote, a backslash, a control
			// character or not ASCII. A borrow may set some above such a one: only
			// the lowest is exact.
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
			ascii = false // such text comes in runs
			for i < len(b) && b[i] >= utf8.RuneSelf {
				i++
			}
		default:
			i++
		}
	}
}

// LongText is how many bytes a text has whose strings LongString reads.
const LongText = 4 * window

// LongString is String, and looks at the budget's context while it reads a long string;
// see work.Budget.Pause. Its loop is not String's: a look at the context in that one
// makes short strings 15 % slower.
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

// longestEscape is the bytes of a pair of surrogates.
const longestEscape = 12

// plain is the index of the first byte from i on that is a quote, a backslash or a control
// character.
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		q, s := w^quotes, w^slashs
		if found := ((w-blanks)&^w | (q-ones)&^q | (s-ones)&^s) & high; found != 0 {
			return i + bits.TrailingZeros64(found)/8 // the lowest is exact
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// valid is utf8.Valid.
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

// escapes are the characters that a backslash and one byte stand for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape steps over the escape sequence at b[i], or over both halves of a pair.
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

// AppendText appends what the inside of a string stands for; all was read by String.
func AppendText(dst, all []byte, budget *work.Budget) []byte {
	// Eight bytes are copied at a time, also where fewer count.
	dst = slices.Grow(dst, len(all)+8)
	out, o, i := dst[:cap(dst)], len(dst), 0
	for {
		raw := all[:min(len(all), i+window)]
		for i < len(raw) {
			if i+8 <= len(raw) {
				w := binary.LittleEndian.Uint64(raw[i:])
				binary.LittleEndian.PutUint64(out[o:], w)
				s := w ^ slashs
				found := (s - ones) &^ s & high // the lowest is exact
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

// Gaps states where the escapes of strings are: for each string with escapes the bytes
// before its first, those between it and the next, and so on, and those behind the
// last. A gap is the sum of bytes up to one that is not 255.
type Gaps []byte

// gapsAtOnce is how many gaps are followed between two looks at the context: at most 1 MiB.
const gapsAtOnce = 4096

func (g *Gaps) add(gap int) {
	for ; gap >= 255; gap -= 255 {
		*g = append(*g, 255)
	}
	*g = append(*g, byte(gap))
}

// AppendTextAt is AppendText where the string's gaps are known: g begins with them.
func AppendTextAt(dst, raw []byte, g Gaps, budget *work.Budget) []byte {
	const most = 16 // bytes that are copied at once, also where fewer count
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

// unicode writes the character of the \u escape that raw begins with to out[o], and
// gives how many bytes were read and where what follows is written.
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

// Word reports whether w stands at b[i].
func Word(b []byte, i int, w string) bool { return len(b)-i >= len(w) && string(b[i:i+len(w)]) == w }

// mostDigits bounds a run of digits. What follows so many is no number's end, so the text
// is refused; Python refuses integers of 4,301 digits.
const mostDigits = 64 << 10

func digits(b []byte, i int) int {
	b = b[:min(len(b), i+mostDigits)]
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// Number reads a number at b[i]: -Infinity too, but not Infinity and NaN, which
// begin as words do. float: it has a fraction or an exponent.
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

// Kind is what a node is.
type Kind uint8

// The kinds of nodes.
const (
	Object  Kind = iota // its nodes are keys and values in turn
	Array               // its nodes are its elements
	Text                // a string without escapes
	Escaped             // a string with escapes
	Other               // a number, a word, or an array of numbers: its text is read again
)

// Node is one value, or one key, of a JSON text. A value's own nodes follow it.
type Node struct {
	Start, End uint32 // of its text, from the beginning of what was scanned
	// More is, of an object or array, the number of nodes, itself and those in it;
	// of an Escaped, where its gaps begin.
	More uint32
	Kind Kind
}

// Size is the number of nodes of the value, itself and those in it.
func (n *Node) Size() uint32 {
	if n.Kind <= Array {
		return n.More
	}
	return 1
}

// Stretch is the structure of some values one after the other.
type Stretch struct {
	Nodes []Node
	Gaps  Gaps
}

// Bytes is what it costs to keep.
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
