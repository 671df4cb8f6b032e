package jinja

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// tokenKind is the type of a token; an operator's is its text.
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

// lexer turns a template into tokens, as Jinja's lexer does with trim_blocks and
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
	src = strings.TrimSuffix(src, "\n") // keep_trailing_newline is off: one newline goes
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

// tokenBytes is the memory of a token in a growing list.
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

// root reads the text up to the next tag, and the tag.
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

// rawBegin returns the end of the `raw %}` at i, or -1.
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

// data emits the text before a tag, stripped according to the tag's sign.
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

// raw reads text up to endraw.
func (l *lexer) raw() {
	if l.pos == len(l.src) {
		return // Jinja has no error at the end of the template either
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

// blockEnd returns the end of the `%}` at i, with its sign and the white space that it
// trims, or -1.
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
