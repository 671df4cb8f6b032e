package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"warmroute/render/internal/pyvalue"
)

// maxWidth bounds widths and precisions in format strings; CPython's own bound is the
// size of memory.
const maxWidth = 1 << 20

// percent returns s % v, printf-style formatting. With escaped the result is Markup,
// and values in it are escaped.
func (st *state) percent(s string, v any, escaped bool) string {
	p := &percentArgs{st: st, s: s, one: v, escaped: escaped}
	if t, ok := v.(*tuple); ok {
		p.tuple, p.isTuple = t.Items, true
	}
	switch v.(type) {
	case *dict, *list, *undefined, *namespace, *rangeVal, bytesVal:
		p.mapping = true // v has __getitem__: unused arguments are no error
	}
	var b []byte
	st.charge(2 * len(s))
	for p.i < len(s) {
		c := strings.IndexByte(s[p.i:], '%')
		if c < 0 {
			b = append(b, s[p.i:]...)
			break
		}
		n := len(b)
		b = append(b, s[p.i:p.i+c]...)
		p.i += c + 1
		b = p.directive(b)
		st.step()
		st.charge(2 * (len(b) - n))
	}
	if p.isTuple && p.next < len(p.tuple) || !p.isTuple && !p.mapping && !p.used {
		typeError("not all arguments converted during string formatting")
	}
	st.charge(len(b))
	return string(b)
}

type percentArgs struct {
	st      *state
	s       string
	i       int
	one     any
	tuple   []any
	isTuple bool
	mapping bool
	used    bool
	next    int
	escaped bool
}

func (p *percentArgs) arg() any {
	if p.isTuple {
		if p.next >= len(p.tuple) {
			typeError("not enough arguments for format string")
		}
		p.next++
		return p.tuple[p.next-1]
	}
	if p.used {
		typeError("not enough arguments for format string")
	}
	p.used = true
	return p.one
}

func (p *percentArgs) char() byte {
	if p.i >= len(p.s) {
		valueError("incomplete format")
	}
	p.i++
	return p.s[p.i-1]
}

func (p *percentArgs) number(c byte) (int, byte) {
	if c == '*' {
		n := intArg("%", p.arg())
		return checkWidth(n), p.char()
	}
	n := 0
	for isDigit(c) {
		n = checkWidth(n*10 + int(c-'0'))
		c = p.char()
	}
	return n, c
}

func checkWidth(n int) int {
	if n > maxWidth || n < -maxWidth {
		fail(ErrLimit, "a width of more than %d", maxWidth)
	}
	return n
}

func (p *percentArgs) directive(b []byte) []byte {
	c := p.char()
	var value any
	hasKey := false
	if c == '(' {
		value, hasKey = p.key(), true
		c = p.char()
	}
	var f spec
	f.fill, f.precision = " ", -1
	for ; strings.IndexByte("-+ #0", c) >= 0; c = p.char() {
		switch c {
		case '-':
			f.align = '<'
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		case '#':
			f.alt = true
		case '0':
			f.zero = true
		}
	}
	if f.width, c = p.number(c); f.width < 0 {
		f.width, f.align = -f.width, '<'
	}
	if c == '.' {
		if f.precision, c = p.number(p.char()); f.precision < 0 {
			f.precision = 0
		}
	}
	if c == 'h' || c == 'l' || c == 'L' {
		c = p.char()
	}
	if c == '%' {
		return append(b, '%')
	}
	if !hasKey {
		value = p.arg()
	}
	return append(b, p.st.percentValue(c, value, &f, p.escaped)...)
}

func (p *percentArgs) key() any {
	depth, start := 1, p.i
	for depth > 0 {
		if p.i >= len(p.s) {
			valueError("incomplete format key")
		}
		switch p.s[p.i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		p.i++
	}
	key := p.s[start : p.i-1]
	if !p.mapping || p.isTuple {
		typeError("format requires a mapping")
	}
	p.used = true
	if d, ok := p.one.(*dict); ok {
		if v, ok := d.GetString(key); ok {
			return v
		}
		fail(ErrRuntime, "KeyError: '%s'", key)
	}
	typeError("indices must be integers")
	return nil
}

func (st *state) percentValue(c byte, v any, f *spec, escaped bool) string {
	var text string
	switch c {
	case 's', 'r', 'a':
		switch {
		case c == 's' && escaped:
			text = string(st.escape(v))
		case c == 's':
			text = st.str(v)
		case c == 'r':
			text = st.repr(v)
		default:
			text = asciiText(st.repr(v))
		}
		if escaped && c != 's' {
			text = string(st.escape(text))
		}
		if f.precision >= 0 {
			text = text[:byteOffset(text, f.precision)]
		}
	case 'c':
		text = charText(v)
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return f.padNumber(st.percentInt(c, v, f))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x, ok := asFloat(v)
		if !ok {
			defined(v)
			typeError("must be real number, not %s", pyvalue.TypeName(v))
		}
		if f.precision < 0 {
			f.precision = 6
		}
		return f.padNumber(formatFloat(x, c, f.precision, f.alt, f.sign))
	default:
		valueError("unsupported format character")
	}
	f.zero = false
	if f.align == 0 {
		f.align = '>'
	}
	return f.pad(text)
}

func charText(v any) string {
	if s, ok := pyvalue.Text(v); ok {
		if pyvalue.Len(s) == 1 {
			return s
		}
		typeError("%%c requires int or char")
	}
	i, ok := asInt(v)
	if !ok {
		typeError("%%c requires int or char")
	}
	n, ok := i.(int64)
	if !ok || n < 0 || n > utf8.MaxRune {
		fail(ErrRuntime, "%%c arg not in range(0x110000)")
	}
	if n >= 0xD800 && n < 0xE000 {
		refuse("lone surrogate")
	}
	return string(rune(n))
}

func asciiText(s string) string {
	if pyvalue.IsASCII(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteString("\\" + escapeText(r))
		}
	}
	return b.String()
}

func (st *state) percentInt(c byte, v any, f *spec) string {
	i, ok := asInt(v)
	if !ok {
		x, isFloat := v.(float64)
		if !isFloat || c == 'o' || c == 'x' || c == 'X' {
			defined(v)
			typeError("%%%c format: a real number is required, not %s", c, pyvalue.TypeName(v))
		}
		i = truncate(x)
	}
	b := pyvalue.AsBig(i)
	base, prefix := 10, ""
	switch c {
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(c)
	}
	digits := bigText(b, base)
	if c == 'X' {
		digits = strings.ToUpper(digits)
	}
	if n := f.precision - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	if f.alt && base != 10 {
		digits = prefix + digits
	}
	return signText(b.Sign() < 0, f.sign) + digits
}

// bigText returns the digits of |b|.
func bigText(b *big.Int, base int) string {
	if base == 10 && b.BitLen() > 14285 {
		fail(ErrRuntime, "Exceeds the limit (4300 digits) for integer string conversion")
	}
	s := new(big.Int).Abs(b).Text(base)
	if base == 10 && len(s) > pyvalue.MaxDigits {
		fail(ErrRuntime, "Exceeds the limit (4300 digits) for integer string conversion")
	}
	return s
}

func signText(negative bool, sign byte) string {
	switch {
	case negative:
		return "-"
	case sign == '+' || sign == ' ':
		return string(sign)
	}
	return ""
}

// truncate returns int(f).
func truncate(f float64) any {
	if math.IsNaN(f) {
		valueError("cannot convert float NaN to integer")
	}
	if math.IsInf(f, 0) {
		fail(errOverflow, "cannot convert float infinity to integer")
	}
	if f > -1e18 && f < 1e18 {
		return int64(f)
	}
	b, _ := new(big.Float).SetFloat64(f).Int(nil)
	return pyvalue.Int(b)
}

// formatFloat formats x by the conversion c; alt keeps the point and trailing zeros.
func formatFloat(x float64, c byte, precision int, alt bool, sign byte) string {
	lead := signText(math.Signbit(x) && !math.IsNaN(x), sign)
	upper := c >= 'A' && c <= 'Z'
	var s string
	switch {
	case math.IsNaN(x):
		s = "nan"
	case math.IsInf(x, 0):
		s = "inf"
	default:
		s = finiteFloat(math.Abs(x), c|0x20, precision, alt)
	}
	if upper {
		s = strings.ToUpper(s)
	}
	return lead + s
}

func finiteFloat(x float64, c byte, precision int, alt bool) string {
	switch c {
	case 'f', 'e':
		s := strconv.FormatFloat(x, c, precision, 64)
		if alt && precision == 0 {
			mantissa, exp, _ := strings.Cut(s, "e")
			if s = mantissa + "."; exp != "" {
				s += "e" + exp
			}
		}
		return s
	}
	if precision == 0 {
		precision = 1
	}
	e := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, expText, _ := strings.Cut(e, "e")
	exp, _ := strconv.Atoi(expText)
	if exp < -4 || exp >= precision {
		if !alt {
			mantissa = trimZeros(mantissa)
		}
		return mantissa + "e" + expText
	}
	s := strconv.FormatFloat(x, 'f', precision-1-exp, 64)
	if alt {
		if strings.IndexByte(s, '.') < 0 {
			s += "."
		}
		return s
	}
	return trimZeros(s)
}

func trimZeros(s string) string {
	if strings.IndexByte(s, '.') < 0 {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// pad pads text to the width.
func (f *spec) pad(text string) string {
	n := f.width - pyvalue.Len(text)
	if n <= 0 {
		return text
	}
	left := 0
	switch f.align {
	case '>':
		left = n
	case '^':
		left = n / 2
	}
	return strings.Repeat(f.fill, left) + text + strings.Repeat(f.fill, n-left)
}

// padNumber pads a number of printf-style formatting: zeros go between sign and digits.
func (f *spec) padNumber(text string) string {
	if f.align == '<' {
		return f.pad(text)
	}
	n := f.width - len(text)
	if f.zero && n > 0 {
		at := 0
		if text[0] == '-' || text[0] == '+' || text[0] == ' ' {
			at++
		}
		if len(text) > at+1 && text[at] == '0' && strings.IndexByte("xXo", text[at+1]) >= 0 {
			at += 2
		}
		return text[:at] + strings.Repeat("0", n) + text[at:]
	}
	f.align = '>'
	return f.pad(text)
}

// errOverflow is the kind of Python's OverflowError, which Jinja's int filter does not
// catch.
var errOverflow = fmt.Errorf("%w (overflow)", ErrRuntime)
