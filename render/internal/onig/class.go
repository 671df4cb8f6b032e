package onig

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"warmroute/render/internal/ucd"
)

// groups maps names to classes of the tables: groups of general categories by their
// one-letter and long names, and other spellings that Oniguruma accepts and the tables
// lack.
var groups = map[string][]string{
	"l": {"Lu", "Ll", "Lt", "Lm", "Lo"}, "letter": {"Lu", "Ll", "Lt", "Lm", "Lo"},
	"lc": {"Lu", "Ll", "Lt"},
	"m":  {"Mn", "Mc", "Me"}, "mark": {"Mn", "Mc", "Me"},
	"n": {"Nd", "Nl", "No"}, "number": {"Nd", "Nl", "No"},
	"p": {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}, "punctuation": {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"},
	"s": {"Sm", "Sc", "Sk", "So"}, "symbol": {"Sm", "Sc", "Sk", "So"},
	"z": {"Zs", "Zl", "Zp"}, "separator": {"Zs", "Zl", "Zp"},
	"uppercaseletter": {"Lu"}, "lowercaseletter": {"Ll"}, "titlecaseletter": {"Lt"}, "modifierletter": {"Lm"},
	"otherletter": {"Lo"}, "decimalnumber": {"Nd"}, "letternumber": {"Nl"}, "othernumber": {"No"},
	"nonspacingmark": {"Mn"}, "spacingmark": {"Mc"}, "enclosingmark": {"Me"},
	"control": {"Cc"}, "format": {"Cf"}, "privateuse": {"Co"}, "unassigned": {"Cn"},
	"spaceseparator": {"Zs"}, "lineseparator": {"Zl"}, "paragraphseparator": {"Zp"},
	"whitespace": {"White_Space"},
	"alnum":      {"posix_alnum"}, "alpha": {"posix_alpha"}, "blank": {"posix_blank"}, "cntrl": {"posix_cntrl"},
	"digit": {"posix_digit"}, "graph": {"posix_graph"}, "lower": {"posix_lower"}, "print": {"posix_print"},
	"punct": {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}, "space": {"posix_space"}, "upper": {"posix_upper"}, "xdigit": {"posix_xdigit"},
}

// named returns the ranges of a class by the name that a pattern gives it. It does not
// know the classes for which surrogates, which no text holds, matter.
func named(name string) ([]ucd.Range, bool) {
	key := strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(name))
	if list, ok := groups[key]; ok {
		var rs []ucd.Range
		for _, c := range list {
			part, found := ucd.Class(c)
			if !found {
				return nil, false
			}
			rs = append(rs, part...)
		}
		return ucd.Union(rs), true
	}
	if strings.HasPrefix(name, "rust_") || strings.HasPrefix(name, "posix_") || strings.HasPrefix(name, `\`) {
		return nil, false
	}
	switch name {
	case "Cn", "Cs", "C", "Unknown": // they hold surrogates, or depend on them
		return nil, false
	}
	return ucd.Class(name)
}

// classSteps is the cost of making a class of Unicode.
const classSteps = 4000

// property parses the braces behind \p or \P.
func (p *parser) property(negated bool) ([]ucd.Range, error) {
	if !p.looking("{") {
		return nil, p.fail("\\p without braces is not supported")
	}
	end := strings.IndexByte(p.src[p.at:], '}')
	if end < 0 {
		return nil, p.fail("\\p{ without its }")
	}
	p.work.Step(classSteps)
	name := p.src[p.at+1 : p.at+end]
	if strings.HasPrefix(name, "^") {
		negated, name = !negated, name[1:]
	}
	rs, ok := named(name)
	if !ok {
		return nil, p.fail("the character class \\p{%s} is not supported", shorten(name))
	}
	if p.fold {
		return nil, p.fail("\\p{%s} without regard to case is not supported", shorten(name))
	}
	p.at += end + 1
	if negated {
		return ucd.Complement(rs), nil
	}
	return rs, nil
}

// shorthand returns the set of \w, \s, \d, \h or of their opposites. Oniguruma's \w has
// six more characters outside a bracket, fractions and raised digits of Latin-1.
func (p *parser) shorthand(c byte, bracket bool) ([]ucd.Range, bool) {
	p.work.Step(classSteps)
	name := `\` + string([]byte{c | 0x20})
	if bracket && c|0x20 == 'w' {
		name = "posix_word"
	}
	rs, ok := ucd.Class(name)
	if !ok || (c|0x20 != 'w' && c|0x20 != 's' && c|0x20 != 'd' && c|0x20 != 'h') {
		return nil, false
	}
	if c < 'a' {
		return ucd.Complement(rs), true
	}
	return rs, true
}

func (p *parser) escape() (*node, error) {
	if !p.more() {
		return nil, p.fail("a backslash at the end")
	}
	c := p.src[p.at]
	if rs, ok := p.shorthand(c, false); ok {
		p.last = 0
		p.at++
		return p.setNode(rs), nil
	}
	switch c {
	case 'p', 'P':
		p.at++
		p.last = 0
		rs, err := p.property(c == 'P')
		if err != nil {
			return nil, err
		}
		return p.setNode(rs), nil
	case 'A', 'z', 'Z', 'b', 'B':
		p.at++
		return &node{kind: kAssert, assert: c}, nil
	}
	r, err := p.escaped()
	if err != nil {
		return nil, err
	}
	return p.literal(r)
}

// escaped parses the character of an escape.
func (p *parser) escaped() (rune, error) {
	at := p.at
	r := p.next()
	switch r {
	case 'n':
		return '\n', nil
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'f':
		return '\f', nil
	case 'v':
		return '\v', nil
	case 'a':
		return '\a', nil
	case 'e':
		return 0x1b, nil
	case 'x', 'u':
		return p.hex(r)
	}
	if r < utf8.RuneSelf && (isLetter(byte(r)) || r >= '0' && r <= '9') {
		p.at = at
		return 0, p.fail("the escape \\%c is not supported", r)
	}
	return r, nil
}

func (p *parser) hex(kind rune) (rune, error) {
	digits, width := "", 4
	if kind == 'x' {
		width = 2
		if p.looking("{") {
			end := strings.IndexByte(p.src[p.at:], '}')
			if end < 0 {
				return 0, p.fail("\\x{ without its }")
			}
			digits = p.src[p.at+1 : p.at+end]
			p.at += end + 1
		}
	}
	if digits == "" {
		if p.at+width > len(p.src) {
			return 0, p.fail("\\%c without %d hexadecimal digits", kind, width)
		}
		digits = p.src[p.at : p.at+width]
		p.at += width
		if kind == 'x' && digits >= "80" {
			return 0, p.fail("\\x%s names a byte, not a character, and is not supported", shorten(digits))
		}
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > ucd.MaxRune || v >= 0xD800 && v <= 0xDFFF {
		return 0, p.fail("%q is not the number of a character", digits)
	}
	return rune(v), nil
}

// class parses a bracketed class after its opening bracket.
func (p *parser) class() ([]ucd.Range, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail("more than %d nested groups", maxDepth)
	}
	defer func() { p.depth-- }()
	negated := p.looking("^")
	if negated {
		p.at++
	}
	var rs, left []ucd.Range
	joined := false // a && is behind left
	for first := true; ; first = false {
		if !p.more() {
			return nil, p.fail("a [ without its ]")
		}
		if p.src[p.at] == ']' && !first {
			p.at++
			break
		}
		if p.looking("&&") {
			p.at += 2
			left, joined, rs = p.meet(left, joined, rs), true, nil
			continue
		}
		more, err := p.member(first)
		if err != nil {
			return nil, err
		}
		p.work.Step(1 + len(more))
		p.work.Memory(rangeBytes * len(more))
		rs = append(rs, more...)
	}
	rs = p.meet(left, joined, rs)
	if negated {
		if p.fold && hasLetters(rs) {
			return nil, p.fail("a negated class of letters without regard to case is not supported")
		}
		rs = ucd.Complement(rs)
	}
	return rs, nil
}

func hasLetters(rs []ucd.Range) bool {
	letters := []ucd.Range{{Lo: 'A', Hi: 'Z'}, {Lo: 'a', Hi: 'z'}}
	return len(ucd.Intersect(ucd.Union(rs), letters)) > 0
}

// rangeBytes is the size of a ucd.Range.
const rangeBytes = 8

func (p *parser) meet(left []ucd.Range, joined bool, right []ucd.Range) []ucd.Range {
	p.work.Step(rangeSteps * (len(left) + len(right)))
	p.work.Memory(4 * rangeBytes * (len(left) + len(right)))
	right = ucd.Union(right)
	if !joined {
		return right
	}
	return ucd.Intersect(left, right)
}

// member parses one character, range, escape, POSIX bracket or nested class.
func (p *parser) member(first bool) ([]ucd.Range, error) {
	if p.looking("[:") {
		if end := strings.Index(p.src[p.at:], ":]"); end > 0 {
			return p.posix(p.src[p.at+2:p.at+end], end+2)
		}
	}
	if p.src[p.at] == '[' {
		p.at++
		return p.class()
	}
	if p.src[p.at] == '-' && !first && !p.looking("-]") && !p.looking("-&&") {
		return nil, p.fail("a - between other members of a class is not supported")
	}
	lo, rs, err := p.single()
	if err != nil || rs != nil {
		return rs, err
	}
	hi := lo
	if p.looking("-") && !p.looking("-]") {
		p.at++
		if !p.more() || p.src[p.at] == '[' {
			return nil, p.fail("a range without its end")
		}
		if hi, rs, err = p.single(); err != nil {
			return nil, err
		}
		if rs != nil || hi < lo {
			return nil, p.fail("a range without its end")
		}
	}
	return p.folded([]ucd.Range{{Lo: lo, Hi: hi}})
}

// single parses one character, or the set of an escape that names a set.
func (p *parser) single() (rune, []ucd.Range, error) {
	r := p.next()
	if r != '\\' {
		return r, nil, nil
	}
	if !p.more() {
		return 0, nil, p.fail("a backslash at the end")
	}
	c := p.src[p.at]
	if rs, ok := p.shorthand(c, true); ok {
		p.at++
		return 0, rs, nil
	}
	if c == 'p' || c == 'P' {
		p.at++
		rs, err := p.property(c == 'P')
		return 0, rs, err
	}
	if c == 'b' {
		p.at++
		return '\b', nil, nil
	}
	r, err := p.escaped()
	return r, nil, err
}

func (p *parser) posix(name string, length int) ([]ucd.Range, error) {
	bare := strings.TrimPrefix(name, "^")
	rs, ok := ucd.Class("posix_" + bare)
	if !ok {
		return nil, p.fail("the character class [:%s:] is not supported", shorten(name))
	}
	if p.fold {
		return nil, p.fail("[:%s:] without regard to case is not supported", shorten(name))
	}
	p.at += length
	if bare != name {
		rs = ucd.Complement(rs)
	}
	return rs, nil
}
