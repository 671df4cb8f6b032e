package pyvalue

import (
	"math/big"
	"strconv"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"warmroute/render/work"
)

// Printer carries the state of one repr(): the open containers, for the "[...]" of
// cycles, and the first error.
type Printer struct {
	open []any
	err  error
	work *work.Budget
	room int // the charged capacity
}

// Fail records the first error. Printing continues, but its caller discards the text.
func (p *Printer) Fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Repr returns repr(v), charged to w (nil: to nothing).
func Repr(w *work.Budget, v any) (string, error) {
	b, err := AppendRepr(w, nil, v)
	return unsafe.String(unsafe.SliceData(b), len(b)), err
}

// Str returns str(v), charged to w (nil: to nothing).
func Str(w *work.Budget, v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := AppendStr(w, nil, v)
	return unsafe.String(unsafe.SliceData(b), len(b)), err
}

// AppendRepr appends repr(v), charged to w (nil: to nothing). Errors: ErrDepth,
// ErrDigits, ErrAddress.
func AppendRepr(w *work.Budget, dst []byte, v any) ([]byte, error) {
	p := Printer{work: work.Or(w), room: cap(dst)}
	dst = p.Append(dst, v)
	return dst, p.err
}

// AppendStr appends str(v), charged to w (nil: to nothing). Errors: ErrDepth,
// ErrDigits, ErrAddress.
func AppendStr(w *work.Budget, dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return append(dst, v...), nil
	case Stringer:
		return v.AppendStr(dst), nil
	case Texter:
		return append(dst, v.PyText()...), nil
	}
	return AppendRepr(w, dst, v)
}

// Append appends repr(v) inside a larger repr.
func (p *Printer) Append(dst []byte, v any) []byte {
	p.work.Step(2)
	dst = p.append(dst, v)
	work.Grown(p.work, p.room, dst)
	p.room = cap(dst)
	return dst
}

func (p *Printer) append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "None"...)
	case bool:
		if v {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case *big.Int:
		p.work.Step(v.BitLen() * (1 + v.BitLen()/1024) / 8)
		dst, err := appendInt(dst, v)
		if err != nil {
			p.Fail(err)
		}
		return dst
	case float64:
		return AppendFloat(dst, v)
	case string:
		p.work.Step(len(v) / 4)
		return AppendQuoted(dst, v)
	case *List:
		return p.list(dst, v)
	case *Tuple:
		return p.tuple(dst, v)
	case *Dict:
		return p.dict(dst, v)
	case Object:
		if !p.enter(v) {
			return dst
		}
		defer p.leave()
		return v.AppendRepr(dst, p)
	}
	p.Fail(ErrAddress)
	return dst
}

// enter opens v, one level of nesting; seen finds cycles. false: printing has failed.
func (p *Printer) enter(v any) bool {
	if p.err != nil {
		return false
	}
	if len(p.open) >= maxNesting {
		p.Fail(ErrDepth)
		return false
	}
	p.open = append(p.open, v)
	return true
}

func (p *Printer) leave() { p.open = p.open[:len(p.open)-1] }

func (p *Printer) seen(v any) bool {
	p.work.Step(len(p.open) / 4)
	for _, o := range p.open {
		if o == v {
			return true
		}
	}
	return false
}

func (p *Printer) list(dst []byte, l *List) []byte {
	if p.seen(l) {
		return append(dst, "[...]"...)
	}
	if !p.enter(l) {
		return dst
	}
	defer p.leave()
	dst = append(dst, '[')
	dst = p.items(dst, l.Items)
	return append(dst, ']')
}

func (p *Printer) items(dst []byte, items []any) []byte {
	for i, it := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst = p.Append(dst, it); p.err != nil {
			return dst
		}
	}
	return dst
}

func (p *Printer) tuple(dst []byte, t *Tuple) []byte {
	if p.seen(t) {
		return append(dst, "(...)"...)
	}
	if !p.enter(t) {
		return dst
	}
	defer p.leave()
	dst = append(dst, '(')
	dst = p.items(dst, t.Items)
	if len(t.Items) == 1 {
		dst = append(dst, ',')
	}
	return append(dst, ')')
}

func (p *Printer) dict(dst []byte, d *Dict) []byte {
	if p.seen(d) {
		return append(dst, "{...}"...)
	}
	if !p.enter(d) {
		return dst
	}
	defer p.leave()
	dst = append(dst, '{')
	for i := range d.entries {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = p.Append(dst, d.entries[i].key)
		dst = append(dst, ": "...)
		if dst = p.Append(dst, d.entries[i].value); p.err != nil {
			return dst
		}
	}
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

// AppendQuoted appends repr() of a str.
func AppendQuoted(dst []byte, s string) []byte { return appendQuoted(dst, s, false) }

// AppendASCII appends ascii() of a str: its repr, with characters outside ASCII
// escaped.
func AppendASCII(dst []byte, s string) []byte { return appendQuoted(dst, s, true) }

func appendQuoted(dst []byte, s string, ascii bool) []byte {
	quote := byte('\'')
	for i := 0; i < len(s); i++ {
		if s[i] == '"' {
			quote = '\''
			break
		}
		if s[i] == '\'' {
			quote = '"'
		}
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == quote || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c == '\r':
				dst = append(dst, '\\', 'r')
			case c == '\t':
				dst = append(dst, '\\', 't')
			case c < ' ' || c == 0x7f:
				dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !ascii && unicode.IsPrint(r) {
			dst = append(dst, s[i:i+n]...)
		} else {
			dst = appendEscape(dst, r)
		}
		i += n
	}
	return append(dst, quote)
}

func appendEscape(dst []byte, r rune) []byte {
	mark, digits := byte('U'), 8
	switch {
	case r < 0x100:
		mark, digits = 'x', 2
	case r < 0x10000:
		mark, digits = 'u', 4
	}
	dst = append(dst, '\\', mark)
	for shift := (digits - 1) * 4; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[r>>shift&15])
	}
	return dst
}
