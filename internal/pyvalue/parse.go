package pyvalue

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// MaxDepth is how deeply arrays and objects may nest in a parsed document.
// CPython's own limit is its recursion limit of 1000 less the frames of the
// server around it; documents between the two are refused here and accepted
// there, which costs a hint, never a wrong one.
const MaxDepth = 512

// Parse reads one JSON document as Python's json.loads does: NaN, Infinity and
// -Infinity are accepted, integers have any size up to MaxDigits, floats
// overflow to infinity. Strings without escapes alias data, which must not
// change while the value is in use.
//
// Errors wrap ErrSyntax, ErrDuplicateKey, ErrSurrogate, ErrUTF8, ErrDepth or
// ErrDigits and name a byte offset, never content.
func Parse(data []byte) (any, error) { return parse(parser{data: data}) }

// ParseLast is Parse, but a key that an object repeats is no error: it has its
// first place and its last value, as in Python.
func ParseLast(data []byte) (any, error) { return parse(parser{data: data, repeats: true}) }

func parse(p parser) (any, error) {
	p.space()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos != len(p.data) {
		return nil, p.fail(ErrSyntax)
	}
	return v, nil
}

// keyCacheSize is the number of recently seen keys kept boxed, a power of two:
// chat bodies repeat about twenty keys thousands of times.
const keyCacheSize = 64

type parser struct {
	data []byte
	pos  int
	// repeats: an object may repeat a key.
	repeats bool
	keys    [keyCacheSize]any // boxed strings, by a cheap hash of the key
	free    []byte            // room for strings with escapes, behind those that are there
}

func (p *parser) fail(kind error) error {
	return fmt.Errorf("%w at byte %d", kind, p.pos)
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) value(depth int) (any, error) {
	if p.pos >= len(p.data) {
		return nil, p.fail(ErrSyntax)
	}
	switch c := p.data[p.pos]; c {
	case '"':
		return p.boxedString()
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case 't':
		return p.literal("true", true)
	case 'f':
		return p.literal("false", false)
	case 'n':
		return p.literal("null", nil)
	case 'N':
		return p.literal("NaN", math.NaN())
	case 'I':
		return p.literal("Infinity", math.Inf(1))
	}
	return p.number()
}

func (p *parser) boxedString() (any, error) {
	s, err := p.str()
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p *parser) literal(text string, v any) (any, error) {
	if len(p.data)-p.pos < len(text) || string(p.data[p.pos:p.pos+len(text)]) != text {
		return nil, p.fail(ErrSyntax)
	}
	p.pos += len(text)
	return v, nil
}

func (p *parser) array(depth int) (any, error) {
	if depth >= MaxDepth {
		return nil, p.fail(ErrDepth)
	}
	p.pos++
	l := &List{}
	p.space()
	if p.skip(']') {
		return l, nil
	}
	for {
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
		p.space()
		if p.skip(']') {
			return l, nil
		}
		if !p.skip(',') {
			return nil, p.fail(ErrSyntax)
		}
	}
}

func (p *parser) skip(c byte) bool {
	if p.pos < len(p.data) && p.data[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *parser) object(depth int) (any, error) {
	if depth >= MaxDepth {
		return nil, p.fail(ErrDepth)
	}
	p.pos++
	d := &Dict{}
	p.space()
	if p.skip('}') {
		return d, nil
	}
	for {
		p.space()
		if p.pos >= len(p.data) || p.data[p.pos] != '"' {
			return nil, p.fail(ErrSyntax)
		}
		s, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if !p.skip(':') {
			return nil, p.fail(ErrSyntax)
		}
		_, repeated := d.GetString(s)
		if repeated && !p.repeats {
			return nil, p.fail(ErrDuplicateKey)
		}
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if repeated {
			d.Set(s, v)
		} else {
			d.add(p.box(s), v)
		}
		p.space()
		if p.skip('}') {
			return d, nil
		}
		if !p.skip(',') {
			return nil, p.fail(ErrSyntax)
		}
	}
}

// box returns s as a value, shared with an equal key seen before.
func (p *parser) box(s string) any {
	if s == "" {
		return s
	}
	slot := &p.keys[(uint(s[0])+uint(s[len(s)-1])*7+uint(len(s))*13)%keyCacheSize]
	if t, ok := (*slot).(string); ok && t == s {
		return *slot
	}
	*slot = s
	return *slot
}

// str reads a string at the opening quote.
func (p *parser) str() (string, error) {
	p.pos++
	start := p.pos
	ascii := true
	for p.pos < len(p.data) {
		if p.plain(); p.pos == len(p.data) {
			break
		}
		switch c := p.data[p.pos]; {
		case c == '"':
			raw := p.data[start:p.pos]
			if !ascii && !utf8.Valid(raw) {
				return "", p.fail(ErrUTF8)
			}
			p.pos++
			return unsafe.String(unsafe.SliceData(raw), len(raw)), nil
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			return "", p.fail(ErrSyntax)
		case c >= utf8.RuneSelf:
			ascii = false
			for p.pos < len(p.data) && p.data[p.pos] >= utf8.RuneSelf {
				p.pos++
			}
		default:
			p.pos++
		}
	}
	return "", p.fail(ErrSyntax)
}

// plain steps over ASCII that stands for itself in a JSON string, eight bytes at
// a time: up to a control character, a quote, a backslash or a byte beyond ASCII,
// or to less than eight bytes before the end.
func (p *parser) plain() {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for p.pos+8 <= len(p.data) {
		w := binary.LittleEndian.Uint64(p.data[p.pos:])
		quote, backslash := w^(ones*'"'), w^(ones*'\\')
		// The lowest bit is exact; a borrow may set some above it.
		if found := (w | (w - ones*' ') | (quote - ones) | (backslash - ones)) & high; found != 0 {
			p.pos += bits.TrailingZeros64(found) / 8
			return
		}
		p.pos += 8
	}
}

// textBlock is the memory taken at once for strings with escapes, in bytes: some
// messages' worth, and little beside a document's values.
const textBlock = 16 << 10

// escaped reads on from the first backslash of a string that began at start. The
// text is written into memory that a document's strings share.
func (p *parser) escaped(start int) (string, error) {
	buf := p.free[:0]
	if cap(buf) < p.pos-start+utf8.UTFMax {
		buf = make([]byte, 0, max(p.pos-start+utf8.UTFMax, min(len(p.data)-start, textBlock)))
	}
	buf = append(buf, p.data[start:p.pos]...)
	for {
		buf = p.copyPlain(buf)
		if p.pos >= len(p.data) {
			return "", p.fail(ErrSyntax)
		}
		switch c := p.data[p.pos]; {
		case c == '"':
			if !utf8.Valid(buf) {
				return "", p.fail(ErrUTF8)
			}
			p.pos++
			p.free = buf[len(buf):]
			return unsafe.String(unsafe.SliceData(buf), len(buf)), nil
		case c == '\\':
			p.pos++
			var err error
			if buf, err = p.escape(buf); err != nil {
				return "", err
			}
		case c < ' ':
			return "", p.fail(ErrSyntax)
		default: // less than eight bytes before the document's end
			buf = append(buf, c)
			p.pos++
		}
	}
}

// copyPlain appends what stands for itself, eight bytes at a time: up to the next
// quote, backslash or control character, or less than eight bytes before the end.
func (p *parser) copyPlain(buf []byte) []byte {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for p.pos+8 <= len(p.data) {
		w := binary.LittleEndian.Uint64(p.data[p.pos:])
		buf = binary.LittleEndian.AppendUint64(buf, w)
		quote, backslash := w^(ones*'"'), w^(ones*'\\')
		// The lowest bit is exact; a borrow may set some above it.
		found := ((w-ones*' ')&^w | (quote-ones)&^quote | (backslash-ones)&^backslash) & high
		if found != 0 {
			n := bits.TrailingZeros64(found) / 8
			p.pos += n
			return buf[:len(buf)-8+n]
		}
		p.pos += 8
	}
	return buf
}

// escapes are the characters that a backslash and one byte stand for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape appends what the escape sequence behind the backslash stands for.
func (p *parser) escape(buf []byte) ([]byte, error) {
	if p.pos >= len(p.data) {
		return buf, p.fail(ErrSyntax)
	}
	c := p.data[p.pos]
	p.pos++
	if plain := escapes[c]; plain != 0 {
		return append(buf, plain), nil
	}
	if c != 'u' {
		return buf, p.fail(ErrSyntax)
	}
	r, ok := p.hex4()
	if !ok {
		return buf, p.fail(ErrSyntax)
	}
	if utf16.IsSurrogate(r) {
		if r >= 0xDC00 || len(p.data)-p.pos < 6 || p.data[p.pos] != '\\' || p.data[p.pos+1] != 'u' {
			return buf, p.fail(ErrSurrogate)
		}
		p.pos += 2
		low, ok := p.hex4()
		if !ok {
			return buf, p.fail(ErrSyntax)
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return buf, p.fail(ErrSurrogate)
		}
	}
	return utf8.AppendRune(buf, r), nil
}

func (p *parser) hex4() (rune, bool) {
	if len(p.data)-p.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range p.data[p.pos : p.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	p.pos += 4
	return r, true
}

func (p *parser) digits() int {
	start := p.pos
	for p.pos < len(p.data) && p.data[p.pos]-'0' < 10 {
		p.pos++
	}
	return p.pos - start
}

func (p *parser) number() (any, error) {
	start := p.pos
	if p.skip('-') && p.pos < len(p.data) && p.data[p.pos] == 'I' {
		return p.literal("Infinity", math.Inf(-1))
	}
	first := p.pos
	n := p.digits()
	if n == 0 || n > 1 && p.data[first] == '0' {
		return nil, p.fail(ErrSyntax)
	}
	isFloat := false
	// As in Python, a fraction or exponent without digits is not part of the
	// number; what is left over then fails as syntax.
	if mark := p.pos; p.skip('.') {
		if p.digits() > 0 {
			isFloat = true
		} else {
			p.pos = mark
		}
	}
	if mark := p.pos; p.skip('e') || p.skip('E') {
		if !p.skip('+') {
			p.skip('-')
		}
		if p.digits() > 0 {
			isFloat = true
		} else {
			p.pos = mark
		}
	}
	text := p.data[start:p.pos]
	if isFloat {
		f, _ := strconv.ParseFloat(unsafe.String(unsafe.SliceData(text), len(text)), 64) // out of range: ±Inf, as Python
		return f, nil
	}
	return p.integer(text, n)
}

func (p *parser) integer(text []byte, digits int) (any, error) {
	if digits < 19 {
		i, _ := strconv.ParseInt(unsafe.String(unsafe.SliceData(text), len(text)), 10, 64)
		return i, nil
	}
	if digits > MaxDigits {
		return nil, p.fail(ErrDigits)
	}
	b, ok := new(big.Int).SetString(string(text), 10)
	if !ok {
		return nil, p.fail(ErrSyntax)
	}
	return Int(b), nil
}
