package onig

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

type opcode uint8

const (
	opMatch  opcode = iota
	opSet           // one character of set
	opStar          // up to n characters of set (-1: any number); gives them back one by one
	opGreedy        // the same, but gives nothing back
	opSplit         // x first, then y
	opJump          // to x
	opLook          // x: body, y: after; neg, behind
	opAtomic        // x: body, y: after
	opAssert        // the anchor n
	opFail
)

type inst struct {
	op          opcode
	neg, behind bool
	n           int32
	x, y        int32
	set         *ucd.Set
	begins      *[2]uint64 // opSplit: the ASCII characters that x may begin with; nil: unknown
}

const (
	maxInsts  = 20000 // a pattern of 5 kB compiles to a few hundred
	maxLook   = 32    // characters a look-ahead may read
	maxBranch = 64    // alternatives with a bit in Regexp.first
)

// instSteps and instBytes are the cost of making an instruction.
const (
	instSteps = 8
	instBytes = 64
)

// Regexp is a compiled expression.
type Regexp struct {
	insts    []inst
	branches []int32     // the first instructions of the expression's alternatives
	first    [256]uint64 // by first byte, a bit for each alternative that may match
}

// Compile compiles an expression in Oniguruma's Ruby syntax, or returns an error that
// names the unsupported part. It refuses expressions that match the empty text: they
// are useless as splitters. It charges b (nil: nothing); its caller defers work.Catch.
func Compile(b *work.Budget, src string) (*Regexp, error) {
	if b == nil {
		b = new(work.Budget)
	}
	if !utf8.ValidString(src) {
		return nil, fmt.Errorf("regular expression %q is not UTF-8", shorten(src))
	}
	p := &parser{work: b, src: src, sets: map[string]*ucd.Set{}}
	root, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.more() {
		return nil, p.fail("a ) without its (")
	}
	if root.minLen() == 0 {
		return nil, fmt.Errorf("regular expression %q may match the empty text, which is not supported", shorten(src))
	}
	branches := []*node{root}
	if root.kind == kAlt && len(root.subs) <= maxBranch {
		branches = root.subs
	}
	c := &compiler{p: p}
	for i, branch := range branches {
		c.re.branches = append(c.re.branches, int32(len(c.re.insts)))
		if err := c.node(branch); err != nil {
			return nil, err
		}
		c.emit(inst{op: opMatch})
		var first [256]bool
		if branch.firstBytes(&first) {
			for j := range first {
				first[j] = true
			}
		}
		for j, may := range first {
			if may {
				c.re.first[j] |= 1 << i
			}
		}
	}
	c.settle()
	return &c.re, nil
}

type compiler struct {
	p  *parser
	re Regexp
}

func (c *compiler) emit(i inst) int32 {
	c.re.insts = append(c.re.insts, i)
	return int32(len(c.re.insts) - 1)
}

func (c *compiler) here() int32 { return int32(len(c.re.insts)) }

func (c *compiler) node(n *node) error {
	if len(c.re.insts) > maxInsts {
		return fmt.Errorf("regular expression %q is too large", shorten(c.p.src))
	}
	c.p.work.Step(instSteps)
	c.p.work.Memory(instBytes)
	switch n.kind {
	case kSet:
		c.emit(inst{op: opSet, set: n.set})
	case kSeq:
		for _, s := range n.subs {
			if err := c.node(s); err != nil {
				return err
			}
		}
	case kAlt:
		return c.alt(n)
	case kRepeat:
		return c.repeat(n)
	case kLook:
		return c.look(n)
	case kAtomic:
		return c.atomic(n.subs[0])
	case kAssert:
		c.emit(inst{op: opAssert, n: int32(n.assert)})
	}
	return nil
}

func (c *compiler) alt(n *node) error {
	var ends []int32
	for i, s := range n.subs {
		if i == len(n.subs)-1 {
			if err := c.node(s); err != nil {
				return err
			}
			break
		}
		split := c.emit(inst{op: opSplit})
		c.re.insts[split].x = c.here()
		if err := c.node(s); err != nil {
			return err
		}
		ends = append(ends, c.emit(inst{op: opJump}))
		c.re.insts[split].y = c.here()
	}
	for _, e := range ends {
		c.re.insts[e].x = c.here()
	}
	return nil
}

func (c *compiler) atomic(body *node) error {
	at := c.emit(inst{op: opAtomic})
	c.re.insts[at].x = c.here()
	if err := c.node(body); err != nil {
		return err
	}
	c.emit(inst{op: opMatch})
	c.re.insts[at].y = c.here()
	return nil
}

func (c *compiler) look(n *node) error {
	body := n.subs[0]
	longest := body.maxLen()
	if n.behind && (body.kind != kSet) {
		return fmt.Errorf("regular expression %q: a look-behind of other than one character is not supported", shorten(c.p.src))
	}
	if longest < 0 || longest > maxLook {
		return fmt.Errorf("regular expression %q: a look-ahead over more than %d characters is not supported", shorten(c.p.src), maxLook)
	}
	at := c.emit(inst{op: opLook, neg: n.neg, behind: n.behind})
	c.re.insts[at].x = c.here()
	if n.behind {
		c.re.insts[at].set = body.set
	} else if err := c.node(body); err != nil {
		return err
	}
	c.emit(inst{op: opMatch})
	c.re.insts[at].y = c.here()
	return nil
}

func (c *compiler) repeat(n *node) error {
	sub := n.subs[0]
	if n.greed == 'p' {
		if sub.kind != kSet {
			return c.atomic(&node{kind: kRepeat, subs: n.subs, min: n.min, max: n.max, greed: 'g'})
		}
	}
	for range n.min {
		if err := c.node(sub); err != nil {
			return err
		}
	}
	rest := n.max - n.min // < 0: no end
	if n.max >= 0 && rest == 0 {
		return nil
	}
	if sub.kind == kSet && n.greed != 'l' {
		op := opStar
		if n.greed == 'p' {
			op = opGreedy
		}
		c.emit(inst{op: op, set: sub.set, n: int32(max(rest, -1))})
		return nil
	}
	if sub.minLen() == 0 {
		return fmt.Errorf("regular expression %q: repeating what may be empty is not supported", shorten(c.p.src))
	}
	if n.max < 0 {
		split := c.emit(inst{op: opSplit})
		body := c.here()
		if err := c.node(sub); err != nil {
			return err
		}
		c.emit(inst{op: opJump, x: split})
		c.choose(split, body, n.greed)
		return nil
	}
	var splits []int32
	var bodies []int32
	for range rest {
		splits = append(splits, c.emit(inst{op: opSplit}))
		bodies = append(bodies, c.here())
		if err := c.node(sub); err != nil {
			return err
		}
	}
	for i, s := range splits {
		c.choose(s, bodies[i], n.greed)
	}
	return nil
}

// choose sets the two ways of a loop's split: the body, and the next instruction to be
// emitted. A lazy loop tries the body last.
func (c *compiler) choose(split, body int32, greed byte) {
	in := &c.re.insts[split]
	in.x, in.y = body, c.here()
	if greed == 'l' {
		in.x, in.y = in.y, in.x
	}
}

// settle makes a run greedy that never profits from giving characters back: a run at
// the end of the match, or before characters outside its set. It also sets begins of
// splits.
func (c *compiler) settle() {
	for i := range c.re.insts {
		in := &c.re.insts[i]
		switch in.op {
		case opStar:
			if c.certain(int32(i+1), 0) || c.keeps(in.set, int32(i+1)) {
				in.op = opGreedy
			}
		case opSplit:
			if sets, known := c.opening(in.x, nil); known {
				in.begins = &[2]uint64{}
				for b := range byte(utf8.RuneSelf) {
					if slices.ContainsFunc(sets, func(s *ucd.Set) bool { return s.HasByte(b) }) {
						in.begins[b/64] |= 1 << (b % 64)
					}
				}
			}
		}
	}
}

// keeps reports whether no match from pc on begins with a character of set.
func (c *compiler) keeps(set *ucd.Set, pc int32) bool {
	sets, known := c.opening(pc, nil)
	for _, s := range sets {
		c.p.work.Step(4 * (len(set.Ranges) + len(s.Ranges)))
	}
	return known && len(sets) <= fewOpenings && !slices.ContainsFunc(sets, func(s *ucd.Set) bool {
		return len(ucd.Intersect(set.Ranges, s.Ranges)) > 0
	})
}

const (
	fewOpenings  = 4  // the sets that keeps compares a run with
	mostOpenings = 16 // the sets that opening looks for
)

// opening appends the sets of the characters with which matches from pc on begin. known
// is false if a match may be empty or begins with any other instruction.
func (c *compiler) opening(pc int32, sets []*ucd.Set) (_ []*ucd.Set, known bool) {
	for len(sets) < mostOpenings {
		c.p.work.Step(1)
		switch in := &c.re.insts[pc]; in.op {
		case opSet:
			return append(sets, in.set), true
		case opStar, opGreedy:
			sets = append(sets, in.set)
			pc++
		case opJump:
			pc = in.x
		case opSplit:
			if sets, known = c.opening(in.x, sets); !known {
				return nil, false
			}
			pc = in.y
		default:
			return nil, false
		}
	}
	return nil, false
}

// certain reports whether matching from pc on cannot fail.
func (c *compiler) certain(pc int32, depth int) bool {
	if depth > 16 {
		return false
	}
	c.p.work.Step(1)
	in := c.re.insts[pc]
	switch in.op {
	case opMatch:
		return true
	case opStar, opGreedy:
		return c.certain(pc+1, depth+1)
	case opJump:
		return c.certain(in.x, depth+1)
	case opSplit:
		return c.certain(in.x, depth+1) || c.certain(in.y, depth+1)
	}
	return false
}

// minLen returns the least number of characters that n matches.
func (n *node) minLen() int {
	switch n.kind {
	case kSet:
		return 1
	case kSeq:
		sum := 0
		for _, s := range n.subs {
			sum += s.minLen()
		}
		return min(sum, 1<<20)
	case kAlt:
		least := n.subs[0].minLen()
		for _, s := range n.subs[1:] {
			least = min(least, s.minLen())
		}
		return least
	case kRepeat:
		return min(n.min*n.subs[0].minLen(), 1<<20)
	case kAtomic:
		return n.subs[0].minLen()
	}
	return 0
}

// maxLen returns the greatest number of characters that n matches, -1 if it is
// unbounded.
func (n *node) maxLen() int {
	switch n.kind {
	case kSet:
		return 1
	case kSeq, kAlt:
		total := 0
		for _, s := range n.subs {
			l := s.maxLen()
			if l < 0 {
				return -1
			}
			if n.kind == kSeq {
				total = min(total+l, 1<<20)
			} else {
				total = max(total, l)
			}
		}
		return total
	case kRepeat:
		if l := n.subs[0].maxLen(); l >= 0 && n.max >= 0 {
			return min(l*n.max, 1<<20)
		}
		return -1
	case kAtomic:
		return n.subs[0].maxLen()
	}
	return 0
}

// firstBytes adds the bytes with which a match of n may begin to out, and reports
// whether n may match without reading a byte.
func (n *node) firstBytes(out *[256]bool) (empty bool) {
	switch n.kind {
	case kSet:
		for _, r := range n.set.Ranges {
			for c := r.Lo; c <= min(r.Hi, utf8.RuneSelf-1); c++ {
				out[c] = true
			}
			if r.Hi < utf8.RuneSelf {
				continue
			}
			for b := lead(max(r.Lo, utf8.RuneSelf)); b <= lead(r.Hi); b++ {
				out[b] = true
			}
		}
		return false
	case kSeq:
		for _, s := range n.subs {
			if !s.firstBytes(out) {
				return false
			}
		}
		return true
	case kAlt:
		for _, s := range n.subs {
			empty = s.firstBytes(out) || empty
		}
		return empty
	case kRepeat:
		return n.subs[0].firstBytes(out) || n.min == 0
	case kAtomic:
		return n.subs[0].firstBytes(out)
	}
	return true
}

// lead returns the first byte of r in UTF-8. Surrogates, which no text holds, have the
// byte that the encoding would give them.
func lead(r rune) int {
	switch {
	case r < 0x800:
		return 0xC0 | int(r>>6)
	case r < 0x10000:
		return 0xE0 | int(r>>12)
	}
	return 0xF0 | int(r>>18)
}
