package onig

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

type kind uint8

const (
	kEmpty kind = iota
	kSet
	kSeq
	kAlt
	kRepeat
	kLook
	kAtomic
	kAssert
)

// node is a parsed expression.
type node struct {
	kind     kind
	set      *ucd.Set
	subs     []*node
	min, max int  // kRepeat; max -1: no limit
	greed    byte // kRepeat: 'g'reedy, 'l'azy, 'p'ossessive
	neg      bool // kLook
	behind   bool // kLook
	assert   byte // kAssert: the letter or sign of the anchor
}

// maxCount bounds the counts of {n,m}: each repetition has instructions of its own.
const maxCount = 256

// maxDepth bounds the nesting of groups, so that a hostile file cannot
// exhaust the stack.
const maxDepth = 100

type parser struct {
	work  *work.Budget
	src   string
	at    int
	depth int
	fold  bool // (?i)
	dot   bool // (?m): the dot matches newlines too
	ext   bool // (?x)
	sets  map[string]*ucd.Set
	last  byte // under (?i) the letter before at: some pairs fold to one character
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("regular expression %q: %s at byte %d", shorten(p.src), fmt.Sprintf(format, args...), p.at)
}

func shorten(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

func (p *parser) more() bool            { return p.at < len(p.src) }
func (p *parser) looking(s string) bool { return strings.HasPrefix(p.src[p.at:], s) }

func (p *parser) next() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.at:])
	p.at += n
	return r
}

// alternatives parses alternatives up to a closing parenthesis or the end.
func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail("more than %d nested groups", maxDepth)
	}
	defer func() { p.depth-- }()
	fold, dot, ext := p.fold, p.dot, p.ext
	defer func() { p.fold, p.dot, p.ext = fold, dot, ext }()
	alt := &node{kind: kAlt}
	for {
		seq, err := p.sequence()
		if err != nil {
			return nil, err
		}
		alt.subs = append(alt.subs, seq)
		if !p.more() || p.src[p.at] != '|' {
			break
		}
		p.at++
	}
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

func (p *parser) sequence() (*node, error) {
	seq := &node{kind: kSeq}
	p.last = 0
	for p.more() && p.src[p.at] != '|' && p.src[p.at] != ')' {
		if p.ext && strings.ContainsRune(" \t\r\n\f\v", rune(p.src[p.at])) {
			p.at++
			continue
		}
		if p.ext && p.src[p.at] == '#' {
			return nil, p.fail("a comment of the extended form is not supported")
		}
		if set, ok, err := p.options(); err != nil {
			return nil, err
		} else if ok {
			if set != nil {
				seq.subs = append(seq.subs, set)
			}
			continue
		}
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n, err = p.quantified(n); err != nil {
			return nil, err
		}
		if n.kind != kEmpty {
			seq.subs = append(seq.subs, n)
		}
	}
	if len(seq.subs) == 1 {
		return seq.subs[0], nil
	}
	return seq, nil
}

// options parses an option such as (?i), which holds to the end of the group. As in
// Oniguruma, the rest of the group, alternatives included, is the option's body.
func (p *parser) options() (*node, bool, error) {
	if !p.looking("(?") {
		return nil, false, nil
	}
	end := strings.IndexAny(p.src[p.at+2:], ":)")
	if end < 0 || strings.Trim(p.src[p.at+2:p.at+2+end], "imx-") != "" || p.src[p.at+2+end] != ')' {
		return nil, false, nil
	}
	if err := p.flags(p.src[p.at+2 : p.at+2+end]); err != nil {
		return nil, false, err
	}
	p.at += 2 + end + 1
	rest, err := p.alternatives()
	return rest, true, err
}

func (p *parser) flags(s string) error {
	on := true
	for _, c := range s {
		switch c {
		case '-':
			on = false
		case 'i':
			p.fold = on
		case 'm':
			p.dot = on
		case 'x':
			p.ext = on
		default:
			return p.fail("the option %q is not supported", c)
		}
	}
	return nil
}

func (p *parser) atom() (*node, error) {
	at := p.at
	p.work.Step(instSteps)
	p.work.Memory(instBytes)
	r := p.next()
	if r != '(' && r != '\\' && r < utf8.RuneSelf && !isLetter(byte(r)) {
		p.last = 0
	}
	switch r {
	case '(':
		p.last = 0
		p.at = at
		return p.group()
	case '[':
		rs, err := p.class()
		if err != nil {
			return nil, err
		}
		return p.setNode(rs), nil
	case '.':
		if p.dot {
			return p.setNode([]ucd.Range{{Lo: 0, Hi: ucd.MaxRune}}), nil
		}
		return p.setNode(ucd.Complement([]ucd.Range{{Lo: '\n', Hi: '\n'}})), nil
	case '^', '$':
		return &node{kind: kAssert, assert: byte(r)}, nil
	case '\\':
		return p.escape()
	case '*', '+', '?':
		p.at = at
		return nil, p.fail("%q has nothing to repeat", r)
	case ')':
		p.at = at
		return nil, p.fail("a ) without its (")
	}
	return p.literal(r)
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// literal returns a node for the character r. Under (?i) it refuses letters outside
// ASCII and pairs of letters that also match one character (ß for "ss", ﬁ for "fi").
func (p *parser) literal(r rune) (*node, error) {
	if p.fold {
		if err := p.foldPair(r); err != nil {
			return nil, err
		}
	}
	rs, err := p.folded([]ucd.Range{{Lo: r, Hi: r}})
	if err != nil {
		return nil, err
	}
	return p.setNode(rs), nil
}

func (p *parser) foldPair(r rune) error {
	c := byte(0)
	if r < utf8.RuneSelf && isLetter(byte(r)) {
		c = byte(r) | 0x20
	}
	switch pair := string([]byte{p.last, c}); pair {
	case "ss", "st", "ff", "fi", "fl":
		return p.fail("%q without regard to case also matches single characters and is not supported", pair)
	}
	p.last = c
	return nil
}

// folded adds the other cases of rs under (?i).
func (p *parser) folded(rs []ucd.Range) ([]ucd.Range, error) {
	if !p.fold {
		return rs, nil
	}
	var more []ucd.Range
	for _, r := range rs {
		if r.Hi >= utf8.RuneSelf && !p.caseless(r) {
			return nil, p.fail("%+q without regard to case is not supported", string(r.Lo))
		}
		for c := r.Lo; c <= min(r.Hi, 'z'); c++ {
			if !isLetter(byte(c)) {
				continue
			}
			more = append(more, ucd.Range{Lo: c ^ 0x20, Hi: c ^ 0x20})
			switch c | 0x20 {
			case 's':
				more = append(more, ucd.Range{Lo: 'ſ', Hi: 'ſ'})
			case 'k':
				more = append(more, ucd.Range{Lo: 'K', Hi: 'K'}) // the Kelvin sign
			}
		}
	}
	return ucd.Union(rs, more), nil
}

// caseless reports whether a range outside ASCII holds only punctuation and spaces.
func (p *parser) caseless(r ucd.Range) bool {
	p.work.Step(classSteps)
	var all []ucd.Range
	for _, c := range []string{"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Zs", "Zl", "Zp"} {
		rs, _ := ucd.Class(c)
		all = append(all, rs...)
	}
	for _, u := range ucd.Union(all) {
		if u.Lo <= r.Lo && r.Hi <= u.Hi {
			return true
		}
	}
	return false
}

// A set costs rangeSteps for each of its ranges. A new set is a table of all code
// points, and costs setSteps and setBytes too.
const (
	rangeSteps = 32
	setSteps   = 20_000
	setBytes   = 16 << 10
)

func (p *parser) setNode(rs []ucd.Range) *node {
	p.work.Step(rangeSteps * len(rs))
	rs = ucd.Union(rs)
	key := fmt.Sprint(rs)
	s, ok := p.sets[key]
	if !ok {
		p.work.Step(setSteps)
		p.work.Memory(setBytes)
		s = ucd.NewSet(rs)
		p.sets[key] = s
	}
	return &node{kind: kSet, set: s}
}

func (p *parser) group() (*node, error) {
	p.at++ // (
	wrap := func(n *node) *node { return n }
	fold, dot, ext := p.fold, p.dot, p.ext
	defer func() { p.fold, p.dot, p.ext = fold, dot, ext }()
	look := func(neg, behind bool) func(*node) *node {
		return func(n *node) *node { return &node{kind: kLook, subs: []*node{n}, neg: neg, behind: behind} }
	}
	switch {
	case !p.looking("?"):
	case p.looking("?:"):
		p.at += 2
	case p.looking("?="):
		p.at += 2
		wrap = look(false, false)
	case p.looking("?!"):
		p.at += 2
		wrap = look(true, false)
	case p.looking("?<="):
		p.at += 3
		wrap = look(false, true)
	case p.looking("?<!"):
		p.at += 3
		wrap = look(true, true)
	case p.looking("?>"):
		p.at += 2
		wrap = func(n *node) *node { return &node{kind: kAtomic, subs: []*node{n}} }
	case p.looking("?#"):
		end := strings.IndexByte(p.src[p.at:], ')')
		if end < 0 {
			return nil, p.fail("a comment without its end")
		}
		p.at += end + 1
		return &node{kind: kEmpty}, nil
	default:
		colon := strings.IndexByte(p.src[p.at:], ':')
		if colon < 0 || strings.Trim(p.src[p.at+1:p.at+colon], "imx-") != "" {
			return nil, p.fail("the group (%s is not supported", shorten(p.src[p.at:min(len(p.src), p.at+3)]))
		}
		if err := p.flags(p.src[p.at+1 : p.at+colon]); err != nil {
			return nil, err
		}
		p.at += colon + 1
	}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.more() {
		return nil, p.fail("a ( without its )")
	}
	p.at++
	p.last = 0
	return wrap(n), nil
}

// quantified parses the quantifiers after an atom. In Ruby's syntax a + behind ?, * or
// + makes these possessive; a + behind {n,m} is one more quantifier.
func (p *parser) quantified(n *node) (*node, error) {
	for p.more() {
		lo, hi, interval := 0, -1, false
		switch p.src[p.at] {
		case '?':
			hi = 1
		case '*':
		case '+':
			lo = 1
		case '{':
			var ok bool
			var err error
			if lo, hi, ok, err = p.interval(); err != nil {
				return nil, err
			} else if !ok {
				return n, nil
			}
			interval = true
		default:
			return n, nil
		}
		if n.kind == kAssert || n.kind == kLook || n.kind == kEmpty {
			return nil, p.fail("a repeated look-around or anchor is not supported")
		}
		p.last = 0
		if !interval {
			p.at++
		}
		greed := byte('g')
		if p.looking("?") {
			if interval && lo == hi {
				return nil, p.fail("{n}? is not supported")
			}
			greed = 'l'
			p.at++
		} else if p.looking("+") && !interval {
			greed = 'p'
			p.at++
		}
		if n.kind == kRepeat && n.subs[0].kind == kSet && n.min <= 1 && n.greed == 'g' && greed == 'g' && hi == -1 {
			// (x{1,b})+ is x+; (x{0,b})+, (x{0,b})* and (x{1,b})* are x*.
			n = &node{kind: kRepeat, subs: n.subs, min: min(n.min, lo), max: -1, greed: 'g'}
			continue
		}
		n = &node{kind: kRepeat, subs: []*node{n}, min: lo, max: hi, greed: greed}
	}
	return n, nil
}

// interval parses {n}, {n,}, {,m} or {n,m}. ok is false for any other text: its { is a
// literal.
func (p *parser) interval() (lo, hi int, ok bool, err error) {
	end := strings.IndexByte(p.src[p.at:], '}')
	if end < 0 {
		return 0, 0, false, nil
	}
	a, b, comma := strings.Cut(p.src[p.at+1:p.at+end], ",")
	if strings.Trim(a+b, "0123456789") != "" || a+b == "" {
		return 0, 0, false, nil
	}
	lo, hi = 0, -1
	if a != "" {
		if lo, err = strconv.Atoi(a); err != nil || lo > maxCount {
			return 0, 0, false, p.fail("a count above %d is not supported", maxCount)
		}
	}
	switch {
	case !comma:
		hi = lo
	case b != "":
		if hi, err = strconv.Atoi(b); err != nil || hi > maxCount {
			return 0, 0, false, p.fail("a count above %d is not supported", maxCount)
		}
		if hi < lo {
			return 0, 0, false, p.fail("a count from %d to %d is not supported", lo, hi)
		}
	}
	p.at += end + 1
	return lo, hi, true, nil
}
