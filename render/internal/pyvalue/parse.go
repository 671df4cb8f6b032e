package pyvalue

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unsafe"

	"warmroute/render/internal/jsontext"
	"warmroute/render/work"
)

// MaxDepth bounds the nesting of arrays and objects in a parsed document. CPython's own
// limit is its recursion limit of 1000 less the frames of the server around it. A
// document between the two limits is refused here and accepted there, which costs a
// hint and never gives a wrong one.
const MaxDepth = 512

// Parse reads one JSON document as Python's json.loads does: NaN, Infinity and
// -Infinity are accepted, integers have any size up to MaxDigits, floats
// overflow to infinity. Strings without escapes alias data, which must not
// change while the value is in use.
//
// Errors wrap ErrSyntax, ErrDuplicateKey, ErrSurrogate, ErrUTF8, ErrDepth or
// ErrDigits and name a byte offset, never content.
func Parse(data []byte) (any, error) { return parse(parser{data: data, work: new(work.Budget)}) }

// ParseWithin is Parse, charged to b; its caller defers work.Catch.
func ParseWithin(b *work.Budget, data []byte) (any, error) { return parse(parser{data: data, work: b}) }

// ParseLast is ParseWithin, but accepts a repeated key: it keeps its first place and
// its last value, as in Python.
func ParseLast(b *work.Budget, data []byte) (any, error) {
	return parse(parser{data: data, repeats: true, work: b})
}

// These are the charges for the memory of values: a value in an interface, a list or
// dict without items, an entry of a dict, and an entry of a dict's index.
const (
	boxBytes   = 16
	ownBytes   = 56
	entryBytes = 32
	indexBytes = 64
)

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

// keyCacheSize is the number of recent keys that stay boxed, a power of two: chat
// bodies repeat about twenty keys thousands of times.
const keyCacheSize = 64

type parser struct {
	data []byte
	pos  int
	work *work.Budget
	// repeats allows an object to repeat a key.
	repeats bool
	keys    *[keyCacheSize]any // boxed strings besides usualWords, by keySlot; nil: none
	free    []byte             // memory for further strings with escapes
}

func (p *parser) fail(kind error) error {
	return fmt.Errorf("%w at byte %d", kind, p.pos)
}

func (p *parser) space() { p.pos = jsontext.Space(p.data, p.pos) }

func (p *parser) value(depth int) (any, error) {
	if p.pos >= len(p.data) {
		return nil, p.fail(ErrSyntax)
	}
	p.work.Step(2)
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
	p.work.Memory(boxBytes)
	return s, nil
}

func (p *parser) literal(text string, v any) (any, error) {
	if !jsontext.Word(p.data, p.pos, text) {
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
	p.work.Memory(ownBytes)
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
		before := cap(l.Items)
		l.Items = append(l.Items, v)
		work.Grown(p.work, before, l.Items)
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
	p.work.Memory(ownBytes)
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
			p.work.Step(4)
			p.work.Memory(boxBytes + 2*entryBytes)
			if d.index != nil {
				p.work.Memory(indexBytes)
			}
			d.add(p.box(s, false), v)
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

// usualWords are keys, roles and types of most chats, boxed once.
var usualWords = func() (all [keyCacheSize]any) {
	for _, w := range []string{"role", "content", "system", "user", "assistant", "tool", "type", "text", "function", "name"} {
		all[keySlot(w)] = w
	}
	return all
}()

// keySlot returns a cheap hash of a text that is not empty.
func keySlot(s string) uint {
	return (uint(s[0]) + uint(s[len(s)-1])*7 + uint(len(s))*13) % keyCacheSize
}

// usual returns s as a value if it is one of usualWords, else nil.
func usual(s string) any {
	if s != "" {
		if w := usualWords[keySlot(s)]; w == s {
			return w
		}
	}
	return nil
}

// box returns s as a value, shared with an equal recent key. With own the value is a
// copy, because s may change later.
func (p *parser) box(s string, own bool) any {
	if s == "" {
		return ""
	}
	if w := usual(s); w != nil {
		return w
	}
	if p.keys == nil {
		p.keys = new([keyCacheSize]any)
	}
	slot := &p.keys[keySlot(s)]
	if t, ok := (*slot).(string); ok && t == s {
		return *slot
	}
	if own {
		s = strings.Clone(s)
	}
	*slot = s
	return *slot
}

// problems maps the problems of jsontext to this package's errors.
var problems = [...]error{jsontext.Syntax: ErrSyntax, jsontext.UTF8: ErrUTF8, jsontext.Surrogate: ErrSurrogate}

// str parses the string whose opening quote is at pos.
func (p *parser) str() (string, error) {
	end, escaped, problem := jsontext.LongString(p.data, p.pos, nil, p.work)
	p.work.Step((end - p.pos) / 16)
	if problem != jsontext.OK {
		p.pos = end
		return "", p.fail(problems[problem])
	}
	raw := p.data[p.pos+1 : end-1]
	p.pos = end
	return p.text(raw, escaped), nil
}

// textBlock is the size of the memory that strings with escapes share, in bytes.
const textBlock = 16 << 10

// text returns the text of a string; raw is the inside of the string. Without escapes
// it aliases the document; with escapes it is in memory that a document's strings
// share.
func (p *parser) text(raw []byte, escaped bool) string {
	if escaped {
		raw = jsontext.AppendText(p.room(len(raw)), raw, p.work)
		p.free = raw[len(raw):]
	}
	return unsafe.String(unsafe.SliceData(raw), len(raw))
}

// spare is the number of bytes that a copy may write beyond a text.
const spare = 16

// room returns memory for a text of n bytes, and for spare more.
func (p *parser) room(n int) []byte {
	if n += spare; cap(p.free) < n {
		size := max(n, min(len(p.data), textBlock))
		p.work.Memory(size)
		p.free = make([]byte, 0, size)
	}
	return p.free[:0]
}

func (p *parser) number() (any, error) {
	end, float, ok := jsontext.Number(p.data, p.pos)
	if !ok {
		return nil, p.fail(ErrSyntax)
	}
	text := p.data[p.pos:end]
	p.pos = end
	p.work.Step(len(text) / 4)
	p.work.Memory(boxBytes / 2)
	if float {
		f, _ := strconv.ParseFloat(unsafe.String(unsafe.SliceData(text), len(text)), 64) // out of range: ±Inf, as in Python
		return f, nil
	}
	return p.integer(text)
}

func (p *parser) integer(text []byte) (any, error) {
	digits := len(bytes.TrimPrefix(text, []byte("-")))
	if digits < 19 {
		i, _ := strconv.ParseInt(unsafe.String(unsafe.SliceData(text), len(text)), 10, 64)
		return i, nil
	}
	if digits > MaxDigits {
		return nil, p.fail(ErrDigits)
	}
	p.work.Step(len(text) + len(text)*len(text)/1024)
	p.work.Memory(2 * len(text))
	b, ok := new(big.Int).SetString(string(text), 10)
	if !ok {
		return nil, p.fail(ErrSyntax)
	}
	return Int(b), nil
}
