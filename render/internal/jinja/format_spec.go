package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"warmroute/render/internal/pyvalue"
)

// spec is a format specification:
// [[fill]align][sign][z][#][0][width][,][.precision][type].
type spec struct {
	fill      string
	align     byte // 0: the type's own
	sign      byte
	alt, zero bool
	width     int
	group     byte // ',' or '_'
	precision int  // -1: none
	kind      byte // 0: none
}

func parseSpec(s string) spec {
	f := spec{fill: " ", precision: -1}
	isAlign := func(c byte) bool { return strings.IndexByte("<>=^", c) >= 0 }
	if _, n := utf8.DecodeRuneInString(s); n > 0 && len(s) > n && isAlign(s[n]) {
		f.fill, f.align = s[:n], s[n]
		s = s[n+1:]
	} else if s != "" && isAlign(s[0]) {
		f.align = s[0]
		s = s[1:]
	}
	take := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	number := func() int {
		n := 0
		for s != "" && isDigit(s[0]) {
			n = checkWidth(n*10 + int(s[0]-'0'))
			s = s[1:]
		}
		return n
	}
	f.sign = take("+- ")
	if take("z") != 0 {
		refuse("format option z")
	}
	f.alt = take("#") != 0
	if f.zero = take("0") != 0; f.zero && f.align == 0 {
		f.fill, f.align = "0", '='
	}
	f.width = number()
	f.group = take(",_")
	if f.group != 0 && take(",_") != 0 {
		valueError("Cannot specify both ',' and '_'.")
	}
	if take(".") != 0 {
		if s == "" || !isDigit(s[0]) {
			valueError("Format specifier missing precision")
		}
		f.precision = number()
	}
	if len(s) > 1 {
		valueError("Invalid format specifier")
	}
	if s != "" {
		f.kind = s[0]
	}
	return f
}

// formatSpec returns format(v, spec).
func (st *state) formatSpec(v any, text string) string {
	if text == "" {
		return st.str(v)
	}
	if s, ok := pyvalue.Text(v); ok {
		return formatText(s, text)
	}
	switch x := v.(type) {
	case float64:
		f := parseSpec(text)
		return f.float(x)
	case *undefined, *list, *dict, *tuple, nil:
		typeError("unsupported format string passed to %s.__format__", pyvalue.TypeName(v))
	}
	if i, ok := asInt(v); ok {
		f := parseSpec(text)
		return st.formatInt(&f, i)
	}
	typeError("unsupported format string passed to %s.__format__", pyvalue.TypeName(v))
	return ""
}

func formatText(s, text string) string {
	f := parseSpec(text)
	switch {
	case f.kind != 0 && f.kind != 's':
		valueError("Unknown format code for object of type 'str'")
	case f.sign != 0:
		valueError("Sign not allowed in string format specifier")
	case f.alt:
		valueError("Alternate form (#) not allowed in string format specifier")
	case f.group != 0:
		valueError("Cannot specify ',' with 's'.")
	case f.align == '=' && !f.zero:
		valueError("'=' alignment not allowed in string format specifier")
	}
	if f.align == '=' || f.align == 0 {
		f.align = '<'
	}
	if f.precision >= 0 {
		s = s[:byteOffset(s, f.precision)]
	}
	return f.pad(s)
}

func (st *state) formatInt(f *spec, i any) string {
	switch f.kind {
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		x, _ := asFloat(i)
		return f.float(x)
	}
	if f.precision >= 0 {
		valueError("Precision not allowed in integer format specifier")
	}
	base, prefix := 10, ""
	switch f.kind {
	case 0, 'd':
	case 'n':
		if f.group != 0 {
			valueError("Cannot specify ',' with 'n'.")
		}
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.kind)
	case 'c':
		if f.sign != 0 || f.alt || f.group != 0 {
			valueError("Sign not allowed with integer format specifier 'c'")
		}
		s := charText(i)
		if f.align == 0 {
			f.align = '<' // as for text
		}
		if f.align == '=' {
			f.align = '>'
		}
		return f.pad(s)
	default:
		valueError("Unknown format code for object of type 'int'")
	}
	b := pyvalue.AsBig(i)
	digits := bigText(b, base)
	if f.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alt {
		prefix = ""
	}
	size := 3
	if base != 10 {
		if size = 4; f.group == ',' {
			valueError("Cannot specify ',' with this format code.")
		}
	}
	return f.number(signText(b.Sign() < 0, f.sign)+prefix, digits, "", size)
}

// float formats x. Without a type and a precision the text is x's repr.
func (f *spec) float(x float64) string {
	precision := f.precision
	if precision < 0 {
		precision = 6
	}
	lead := signText(math.Signbit(x) && !math.IsNaN(x), f.sign)
	abs := math.Abs(x)
	var s string
	switch f.kind {
	case 'e', 'E', 'f', 'F', 'g', 'G':
		s = formatFloat(abs, f.kind, precision, f.alt, 0)
	case 'n':
		if f.group != 0 {
			valueError("Cannot specify ',' with 'n'.")
		}
		s = formatFloat(abs, 'g', precision, f.alt, 0)
	case '%':
		s = formatFloat(abs*100, 'f', precision, f.alt, 0) + "%"
	case 0:
		if f.precision < 0 {
			s = string(pyvalue.AppendFloat(nil, abs))
		} else {
			s = reprLike(abs, f.precision, f.alt)
		}
	default:
		valueError("Unknown format code for object of type 'float'")
	}
	digits, tail := s, ""
	if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits, tail = s[:i], s[i:]
	}
	return f.number(lead, digits, tail, 3)
}

// reprLike formats x without a type and with a precision: as g does, but with a digit
// after the point, and with an exponent one digit earlier.
func reprLike(x float64, precision int, alt bool) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return formatFloat(x, 'g', precision, alt, 0)
	}
	p := max(precision, 1)
	e := strconv.FormatFloat(x, 'e', p-1, 64)
	mantissa, expText, _ := strings.Cut(e, "e")
	exp, _ := strconv.Atoi(expText)
	if exp < -4 || exp >= p || exp+1 > p-1 && exp >= 0 && p == exp+1 {
		if !alt {
			mantissa = trimZeros(mantissa)
		}
		return mantissa + "e" + expText
	}
	s := strconv.FormatFloat(x, 'f', max(p-1-exp, 0), 64)
	if !alt {
		s = trimZeros(s)
	}
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// number groups the digits and pads the text.
func (f *spec) number(lead, digits, tail string, size int) string {
	if f.align == 0 {
		f.align = '>'
	}
	if f.group != 0 && digits != "" {
		if f.align == '=' && f.fill == "0" {
			for groupedLen(len(digits), size)+len(lead)+len(tail) < f.width {
				digits = "0" + digits
			}
		}
		digits = group(digits, size, f.group)
	}
	if f.align == '=' {
		if n := f.width - len(lead) - len(digits) - len(tail); n > 0 {
			return lead + strings.Repeat(f.fill, n) + digits + tail
		}
		return lead + digits + tail
	}
	return f.pad(lead + digits + tail)
}

func groupedLen(n, size int) int { return n + (n-1)/size }

func group(digits string, size int, sep byte) string {
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%size == 0 {
			b.WriteByte(sep)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func textFormat(st *state, s string, a *args) any {
	return (&formatter{st: st, pos: a.pos, names: a}).format(s, 2)
}

func textFormatMap(st *state, s string, a *args) any {
	a.noKeywords("format_map")
	if len(a.pos) != 1 {
		typeError("format_map() takes exactly one argument (%d given)", len(a.pos))
	}
	return (&formatter{st: st, mapping: a.pos[0], isMap: true}).format(s, 2)
}

// formatter is the sandbox's string.Formatter.
type formatter struct {
	st      *state
	pos     []any
	names   *args
	mapping any
	isMap   bool
	auto    int // the next automatic index
	manual  bool
}

// format replaces the fields of s; depth bounds the nesting of fields in
// specifications.
func (f *formatter) format(s string, depth int) string {
	if depth < 0 {
		valueError("Max string recursion exceeded")
	}
	var b strings.Builder
	f.st.walk(len(s))
	f.st.charge(2 * len(s))
	for i := 0; i < len(s); {
		switch c := s[i]; c {
		case '{', '}':
			if i+1 < len(s) && s[i+1] == c {
				b.WriteByte(c)
				i += 2
				continue
			}
			if c == '}' {
				valueError("Single '}' encountered in format string")
			}
			end := fieldEnd(s, i+1)
			field := f.field(s[i+1:end], depth)
			f.st.step()
			f.st.charge(3 * len(field))
			b.WriteString(field)
			i = end + 1
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

func fieldEnd(s string, i int) int {
	depth := 1
	bracket := false
	for j := i; j < len(s); j++ {
		switch s[j] {
		case '[':
			bracket = depth == 1 || bracket
		case ']':
			bracket = false
		case '{':
			if !bracket {
				depth++
			}
		case '}':
			if bracket {
				continue
			}
			if depth--; depth == 0 {
				return j
			}
		}
	}
	valueError("expected '}' before end of string")
	return 0
}

func (f *formatter) field(field string, depth int) string {
	name, rest := field, ""
	inBracket := false
	for i := 0; i < len(field); i++ {
		c := field[i]
		if c == '[' {
			inBracket = true
		} else if c == ']' {
			inBracket = false
		}
		if !inBracket && (c == ':' || c == '!') {
			name, rest = field[:i], field[i:]
			break
		}
		if c == '{' && !inBracket {
			valueError("unexpected '{' in field name")
		}
	}
	conversion := byte(0)
	if strings.HasPrefix(rest, "!") {
		if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
			valueError("expected ':' after conversion specifier")
		}
		conversion, rest = rest[1], rest[2:]
	}
	v := f.lookup(name)
	switch conversion {
	case 0:
	case 's':
		v = f.st.str(v)
	case 'r':
		v = f.st.repr(v)
	case 'a':
		v = asciiText(f.st.repr(v))
	default:
		valueError("Unknown conversion specifier")
	}
	text := strings.TrimPrefix(rest, ":")
	if strings.ContainsAny(text, "{}") {
		text = f.format(text, depth-1)
	}
	return f.st.formatSpec(v, text)
}

// lookup returns the value of a field name: an argument, then .attr and [item].
func (f *formatter) lookup(name string) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	v := f.argument(name[:end])
	for rest := name[end:]; rest != ""; {
		if rest[0] == '.' {
			n := strings.IndexAny(rest[1:], ".[")
			if n < 0 {
				n = len(rest) - 1
			}
			if n == 0 {
				valueError("Empty attribute in format string")
			}
			v = f.st.getattr(v, rest[1:n+1])
			rest = rest[n+1:]
			continue
		}
		if rest[0] != '[' {
			valueError("Only '.' or '[' may follow ']' in format field specifier")
		}
		n := strings.IndexByte(rest, ']')
		if n < 0 {
			valueError("Missing ']' in format string")
		}
		if n == 1 {
			valueError("Empty attribute in format string")
		}
		var key any = rest[1:n]
		if i, err := strconv.ParseInt(rest[1:n], 10, 64); err == nil && isDigit(rest[1]) {
			key = i
		}
		v = f.st.getitem(v, key)
		rest = rest[n+1:]
	}
	return v
}

func (f *formatter) argument(name string) any {
	n, err := strconv.Atoi(name)
	isIndex := err == nil && isDigit(name[0])
	if name == "" {
		if f.manual {
			valueError("cannot switch from manual field specification to automatic field numbering")
		}
		n, isIndex = f.auto, true
		f.auto++
	} else if isIndex {
		if f.auto > 0 {
			valueError("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	}
	if isIndex {
		if n >= len(f.pos) {
			fail(ErrRuntime, "Replacement index %d out of range for positional args tuple", n)
		}
		return f.pos[n]
	}
	if f.isMap {
		d, ok := f.mapping.(*dict)
		if !ok {
			defined(f.mapping)
			typeError("'%s' object is not subscriptable by field names", pyvalue.TypeName(f.mapping))
		}
		if v, ok := d.GetString(name); ok {
			return v
		}
	} else if i := f.names.keyword(name); i >= 0 {
		return f.names.vals[i]
	}
	fail(ErrRuntime, "KeyError: '%s'", name)
	return nil
}
