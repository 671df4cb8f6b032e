package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// tokenKind is the type of a token: its own text for operators.
type tokenKind string

const (
	tokEOF           tokenKind = "end of template"
	tokData          tokenKind = "template data"
	tokVariableBegin tokenKind = "begin of print statement"
	tokVariableEnd   tokenKind = "end of print statement"
	tokBlockBegin    tokenKind = "begin of statement block"
	tokBlockEnd      tokenKind = "end of statement block"
	tokName          tokenKind = "name"
	tokString        tokenKind = "string"
	tokInteger       tokenKind = "integer"
	tokFloat         tokenKind = "float"
)

type token struct {
	kind  tokenKind
	line  int
	text  string // data, names and strings
	value any    // numbers
}

// lexer turns a template into tokens as Jinja's does with trim_blocks and
// lstrip_blocks set and line statements unset.
type lexer struct {
	work         *work.Budget
	src          string
	pos          int
	line         int
	lineStarting bool // the last match ended in a newline
	tokens       []token
}

func lex(b *work.Budget, src string) []token {
	b.Step(len(src))
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // keep_trailing_newline is off: one goes
	l := &lexer{work: b, src: src, line: 1, lineStarting: true}
	for l.pos < len(l.src) {
		l.root()
	}
	l.emit(tokEOF, "")
	return l.tokens
}

func (l *lexer) fail(format string, args ...any) {
	defer func() {
		e := recover().(*Error)
		e.Line = l.line
		panic(e)
	}()
	fail(ErrSyntax, format, args...)
}

// tokenBytes are those of a token, and of the room that its list has left.
const tokenBytes = 160

func (l *lexer) emit(kind tokenKind, text string) {
	l.work.Step(stepCost)
	l.work.Memory(tokenBytes)
	l.tokens = append(l.tokens, token{kind: kind, line: l.line, text: text})
}

// advance moves to end and keeps the line count.
func (l *lexer) advance(end int) {
	l.line += strings.Count(l.src[l.pos:end], "\n")
	l.lineStarting = end > l.pos && l.src[end-1] == '\n'
	l.pos = end
}

func skipSpace(s string, i int) int {
	return len(s) - len(strings.TrimLeftFunc(s[i:], pyvalue.IsSpace))
}

// root reads text up to the next tag and then the tag.
func (l *lexer) root() {
	start := l.nextTag()
	if start < 0 {
		l.emit(tokData, l.src[l.pos:])
		l.advance(len(l.src))
		return
	}
	kind := l.src[start+1]
	end := start + 2
	sign := signAt(l.src, end)
	if sign != 0 {
		end++
	}
	rawEnd := -1
	if kind == '%' {
		rawEnd = rawBegin(l.src, end)
	}
	l.data(l.src[l.pos:start], sign, kind != '{')
	l.advance(end)
	switch {
	case rawEnd >= 0:
		l.advance(rawEnd)
		l.raw()
	case kind == '#':
		l.comment()
	case kind == '%':
		l.emit(tokBlockBegin, "")
		l.tag('%')
	default:
		l.emit(tokVariableBegin, "")
		l.tag('}')
	}
}

func (l *lexer) nextTag() int {
	for i := l.pos; ; i++ {
		j := strings.IndexByte(l.src[i:], '{')
		if j < 0 || i+j+1 >= len(l.src) {
			return -1
		}
		i += j
		switch l.src[i+1] {
		case '{', '%', '#':
			return i
		}
	}
}

func signAt(s string, i int) byte {
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		return s[i]
	}
	return 0
}

// rawBegin returns the end of `raw %}` at i, or -1.
func rawBegin(s string, i int) int {
	i = skipSpace(s, i)
	if !strings.HasPrefix(s[i:], "raw") {
		return -1
	}
	i = skipSpace(s, i+3)
	switch {
	case strings.HasPrefix(s[i:], "-%}"):
		return skipSpace(s, i+3)
	case strings.HasPrefix(s[i:], "%}"):
		return i + 2
	}
	return -1
}

// data emits the text before a tag, stripped by the tag's sign.
func (l *lexer) data(text string, sign byte, lstrip bool) {
	switch {
	case sign == '-':
		text = pyvalue.RStrip(l.work, text)
	case sign != '+' && lstrip:
		if n := strings.LastIndexByte(text, '\n') + 1; n > 0 || l.lineStarting {
			if pyvalue.LStrip(l.work, text[n:]) == "" {
				text = text[:n]
			}
		}
	}
	if text != "" {
		l.emit(tokData, text)
	}
}

// raw reads up to endraw.
func (l *lexer) raw() {
	if l.pos == len(l.src) {
		return // as in Jinja, no error at the very end
	}
	for i := l.pos; ; i += 2 {
		j := strings.Index(l.src[i:], "{%")
		if j < 0 {
			l.fail("Missing end of raw directive")
		}
		i += j
		sign := signAt(l.src, i+2)
		k := i + 2
		if sign != 0 {
			k++
		}
		k = skipSpace(l.src, k)
		if !strings.HasPrefix(l.src[k:], "endraw") {
			continue
		}
		if end := blockEnd(l.src, skipSpace(l.src, k+6)); end >= 0 {
			l.data(l.src[l.pos:i], sign, true)
			l.advance(end)
			return
		}
	}
}

// blockEnd returns the end of a `%}` at i with its sign and what it trims, or -1.
func blockEnd(s string, i int) int {
	switch {
	case strings.HasPrefix(s[i:], "+%}"):
		return i + 3
	case strings.HasPrefix(s[i:], "-%}"):
		return skipSpace(s, i+3)
	case strings.HasPrefix(s[i:], "%}\n"):
		return i + 3
	case strings.HasPrefix(s[i:], "%}"):
		return i + 2
	}
	return -1
}

func variableEnd(s string, i int) int {
	switch {
	case strings.HasPrefix(s[i:], "-}}"):
		return skipSpace(s, i+3)
	case strings.HasPrefix(s[i:], "}}"):
		return i + 2
	}
	return -1
}

func (l *lexer) comment() {
	if l.pos == len(l.src) {
		return
	}
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		l.fail("Missing end of comment tag")
	}
	i += l.pos
	end := i + 2
	switch {
	case i > l.pos && l.src[i-1] == '+':
	case i > l.pos && l.src[i-1] == '-':
		end = skipSpace(l.src, end)
	case end < len(l.src) && l.src[end] == '\n':
		end++
	}
	l.advance(end)
}

var closing = map[byte]byte{'(': ')', '[': ']', '{': '}'}

// tag reads tokens up to `%}` (end '%') or `}}` (end '}').
func (l *lexer) tag(end byte) {
	var open []byte
	for l.pos < len(l.src) {
		if len(open) == 0 {
			if end == '%' {
				if e := blockEnd(l.src, l.pos); e >= 0 {
					l.emit(tokBlockEnd, "")
					l.advance(e)
					return
				}
			} else if e := variableEnd(l.src, l.pos); e >= 0 {
				l.emit(tokVariableEnd, "")
				l.advance(e)
				return
			}
		}
		if e := skipSpace(l.src, l.pos); e > l.pos {
			l.advance(e)
			continue
		}
		if l.number() || l.name() || l.quoted() {
			continue
		}
		open = l.operator(open)
	}
}

var operators2 = []string{"//", "**", "==", "!=", ">=", "<="}

const operators1 = "+-/*%~[](){}><=.:|,;"

func (l *lexer) operator(open []byte) []byte {
	rest := l.src[l.pos:]
	for _, op := range operators2 {
		if strings.HasPrefix(rest, op) {
			l.emit(tokenKind(op), op)
			l.advance(l.pos + 2)
			return open
		}
	}
	c := rest[0]
	if strings.IndexByte(operators1, c) < 0 {
		l.fail("unexpected char at %d", l.pos)
	}
	switch c {
	case '(', '[', '{':
		open = append(open, closing[c])
	case ')', ']', '}':
		if len(open) == 0 || open[len(open)-1] != c {
			l.fail("unexpected '%c'", c)
		}
		open = open[:len(open)-1]
	}
	l.emit(tokenKind(rest[:1]), rest[:1])
	l.advance(l.pos + 1)
	return open
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digitRun returns the end of digits joined by single underscores at i.
func digitRun(s string, i int, ok func(byte) bool) int {
	for i < len(s) {
		switch {
		case ok(s[i]):
			i++
		case s[i] == '_' && i+1 < len(s) && ok(s[i+1]) && i > 0:
			i += 2
		default:
			return i
		}
	}
	return i
}

func (l *lexer) number() bool {
	s, i := l.src, l.pos
	if !isDigit(s[i]) {
		return false
	}
	if i == 0 || s[i-1] != '.' {
		if end := floatEnd(s, i); end > i {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(s[i:end], "_", ""), 64)
			l.tokens = append(l.tokens, token{kind: tokFloat, line: l.line, value: f})
			l.advance(end)
			return true
		}
	}
	end, base := integerEnd(s, i)
	text := strings.ReplaceAll(s[i:end], "_", "")
	if base != 10 {
		text = text[2:]
	}
	if base == 10 && len(text) > pyvalue.MaxDigits {
		l.fail("Exceeds the limit (4300 digits) for integer string conversion")
	}
	b, _ := new(big.Int).SetString(text, base)
	l.tokens = append(l.tokens, token{kind: tokInteger, line: l.line, value: pyvalue.Int(b)})
	l.advance(end)
	return true
}

// floatEnd returns the end of a float literal at i, or i.
func floatEnd(s string, i int) int {
	end := digitRun(s, i, isDigit)
	isFloat := false
	if end+1 < len(s) && s[end] == '.' && isDigit(s[end+1]) {
		end = digitRun(s, end+1, isDigit)
		isFloat = true
	}
	if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
		e := end + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if e < len(s) && isDigit(s[e]) {
			return digitRun(s, e, isDigit)
		}
	}
	if !isFloat {
		return i
	}
	return end
}

func integerEnd(s string, i int) (end, base int) {
	if s[i] == '0' && i+1 < len(s) {
		var ok func(byte) bool
		switch s[i+1] | 0x20 {
		case 'b':
			base, ok = 2, func(c byte) bool { return c == '0' || c == '1' }
		case 'o':
			base, ok = 8, func(c byte) bool { return c >= '0' && c <= '7' }
		case 'x':
			base, ok = 16, func(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		}
		if base != 0 {
			if end = digitRun(s, i+2, ok); end > i+2 {
				return end, base
			}
		}
	}
	if s[i] == '0' {
		return digitRun(s, i, func(c byte) bool { return c == '0' }), 10
	}
	return digitRun(s, i, isDigit), 10
}

func (l *lexer) name() bool {
	i := l.pos
	for i < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[i:])
		if r != '_' && !pyvalue.IsAlnum(r) && !pyvalue.IsIdentifier(l.work, "a"+string(r)) {
			break
		}
		i += n
	}
	if i == l.pos {
		return false
	}
	name := l.src[l.pos:i]
	if !pyvalue.IsIdentifier(l.work, name) {
		l.fail("Invalid character in identifier")
	}
	l.emit(tokName, name)
	l.advance(i)
	return true
}

func (l *lexer) quoted() bool {
	quote := l.src[l.pos]
	if quote != '\'' && quote != '"' {
		return false
	}
	i := l.pos + 1
	for ; i < len(l.src) && l.src[i] != quote; i++ {
		if l.src[i] == '\\' {
			i++
		}
	}
	if i >= len(l.src) {
		return false // the quote is then an unexpected character
	}
	l.emit(tokString, l.unescape(l.src[l.pos+1:i]))
	l.advance(i + 1)
	return true
}

// unescape decodes Python's string escapes the way Jinja does it: through
// ASCII with backslashreplace and the unicode-escape codec, which turns a
// backslash before a non-ASCII character into a backslash and the escape's text.
func (l *lexer) unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		if simple := strings.IndexByte("\n\\'\"abfnrtv", c); simple >= 0 {
			b.WriteString([]string{"", "\\", "'", "\"", "\a", "\b", "\f", "\n", "\r", "\t", "\v"}[simple])
			continue
		}
		switch {
		case c >= '0' && c <= '7':
			v := rune(c - '0')
			for n := 1; n < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7'; n++ {
				v = v<<3 | rune(s[i]-'0')
				i++
			}
			b.WriteRune(v)
		case c == 'x' || c == 'u' || c == 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			b.WriteRune(l.hexEscape(s, i, n))
			i += n
		case c == 'N':
			l.fail("\\N{...} escapes are not supported")
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i-1:])
			b.WriteString("\\" + escapeText(r))
			i += n - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapeText is the text of r's escape without the backslash.
func escapeText(r rune) string {
	return strings.Trim(string(pyvalue.AppendASCII(nil, string(r))), "'\\")
}

func (l *lexer) hexEscape(s string, i, n int) rune {
	if len(s)-i < n {
		l.fail("truncated escape in a string")
	}
	v, err := strconv.ParseUint(s[i:i+n], 16, 32)
	if err != nil || v > utf8.MaxRune {
		l.fail("bad escape in a string")
	}
	if v >= 0xD800 && v < 0xE000 {
		l.fail("a surrogate escape in a string is not supported")
	}
	return rune(v)
}
