package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"warmroute/render/internal/pyvalue"
)

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digitRun returns the end of the digits at i, which single underscores may join.
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

// floatEnd returns the end of the float literal at i, or i.
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
		return false // so the quote is an unexpected character
	}
	l.emit(tokString, l.unescape(l.src[l.pos+1:i]))
	l.advance(i + 1)
	return true
}

// unescape decodes Python's string escapes as Jinja does: through ASCII with
// backslashreplace and the unicode-escape codec. A backslash before a character outside
// ASCII becomes a backslash and the text of the character's escape.
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

// escapeText returns the text of r's escape without the backslash.
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
