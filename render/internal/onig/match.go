package onig

import (
	"math/bits"
	"sync"
	"unicode/utf8"

	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

// Machine is the memory of one goroutine for matching, reusable with any Regexp. The
// zero value is ready.
type Machine struct {
	stack []frame
	// steps counts from Reset on. The first charged steps are charged to work; the next
	// charge comes when steps pass next.
	steps, next int
	noted       bool
	inLook      bool
	re          *Regexp
	text        []byte
	// tried has a bit for each (position, instruction) from which matching has failed.
	// It is in use once steps pass limit (noted).
	tried   []uint64
	width   int // the number of instructions
	limit   int
	charged int
	work    *work.Budget
	// unbounded is the budget of a Reset without one.
	unbounded work.Budget
}

// frame is an open choice: to match at pc from pos. With lo ≥ 0 it is a span of
// characters from lo to pos that can give back its last character before it matches at
// pc.
type frame struct{ pc, pos, lo int32 }

const (
	// Ordinary text takes 3 to 8 steps a byte. A match that takes more than
	// stepsPerByte goes back over text, and marks its failures.
	stepsPerByte = 32
	stepsFree    = 4096
)

// Reset sets the text for Next. The cost of all calls of Next on one text is bounded
// together. Next and Forget charge b (nil: nothing); their caller defers work.Catch.
func (m *Machine) Reset(b *work.Budget, re *Regexp, text []byte) {
	if b == nil {
		b = &m.unbounded
	}
	if m.work != b {
		m.pay()
		m.work = b
	}
	m.stack = m.stack[:0] // stopped work leaves choices open
	m.charged -= m.steps  // the uncharged steps of short texts are charged together
	m.re, m.text, m.steps, m.noted = re, text, 0, false
	m.limit = stepsFree + stepsPerByte*len(text)
	m.inLook = false
	m.next = min(m.limit, m.charged+stepsCharged)
	m.width = len(re.insts)
}

// stepsCharged is the number of steps between two charges.
const stepsCharged = 1024

// pay charges the uncharged steps.
func (m *Machine) pay() {
	if m.work != nil {
		m.work.Step(m.steps - m.charged)
	}
	m.charged = m.steps
}

// charge charges the uncharged steps. Beyond limit it starts the marks.
func (m *Machine) charge() {
	m.work.Step(m.steps - m.charged)
	m.charged, m.next = m.steps, m.steps+stepsCharged
	if m.noted {
		return
	}
	if m.steps > m.limit {
		m.startNotes()
	}
	m.next = min(m.next, max(m.limit, m.steps))
}

// notesKept bounds the memory that a Machine keeps between texts, in bytes.
const notesKept = 1 << 20

// Forget charges the uncharged steps, and lets go of the text and of large memory.
func (m *Machine) Forget() {
	m.pay()
	m.re, m.text, m.work = nil, nil, nil
	if cap(m.tried) > notesKept/8 {
		m.tried = nil
	}
	if cap(m.stack) > notesKept/12 {
		m.stack = nil
	}
}

// Next returns the start and the end, in bytes, of the leftmost match at or after pos;
// ok is false if there is none. pos never falls between two Resets.
func (m *Machine) Next(pos int) (start, end int, ok bool) {
	re, text := m.re, m.text
	for {
		if pos < len(text) && re.first[text[pos]] == 0 {
			pos = m.skip(pos)
		}
		if pos >= len(text) {
			if m.steps > m.next {
				m.charge()
			}
			return 0, 0, false
		}
		for alts := re.first[text[pos]]; alts != 0; alts &= alts - 1 {
			pc := re.branches[bits.TrailingZeros64(alts)]
			if e := m.run(pc, int32(pos)); e >= 0 {
				if m.noted {
					m.forget(int(e))
				}
				return pos, int(e), true
			}
		}
		pos++
		for pos < len(text) && !utf8.RuneStart(text[pos]) {
			pos++
		}
	}
}

// skip returns the first offset from pos on whose byte can begin a match, or the end of
// the text.
func (m *Machine) skip(pos int) int {
	re, text, from := m.re, m.text, pos
	for pos < len(text) && re.first[text[pos]] == 0 {
		pos++
	}
	m.steps += (pos - from) / 8
	return pos
}

// Steps returns the steps since Reset, for tests of their bound.
func (m *Machine) Steps() int { return m.steps }

// forget clears the marks at the end of a match, where the match has passed without
// failing. Later marks stay: a failure does not depend on where the attempt began.
func (m *Machine) forget(pos int) {
	for i := pos * m.width; i < (pos+1)*m.width; i++ {
		m.tried[i>>6] &^= 1 << (i & 63)
	}
}

// note marks (pc, pos) and reports whether it had a mark already.
func (m *Machine) note(pc, pos int32) bool {
	i := int(pos)*m.width + int(pc)
	w, b := &m.tried[i>>6], uint64(1)<<(i&63)
	seen := *w&b != 0
	*w |= b
	return seen
}

func (m *Machine) startNotes() {
	n := (m.width*(len(m.text)+1) + 63) / 64
	m.work.Step(n / 8)
	if cap(m.tried) < n {
		m.work.Memory(8 * n)
		m.tried = make([]uint64, n)
	}
	m.tried = m.tried[:n]
	clear(m.tried)
	m.noted = true
}

func (m *Machine) rune(pos int32) (rune, int32) {
	if c := m.text[pos]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	r, n := utf8.DecodeRune(m.text[pos:])
	return r, int32(n)
}

// run matches from (pc, pos) and returns the end of the match, or -1.
func (m *Machine) run(pc, pos int32) int32 {
	base := len(m.stack)
	end := m.explore(base, pc, pos)
	m.stack = m.stack[:base]
	return end
}

func (m *Machine) explore(base int, pc, pos int32) int32 {
	insts, text := m.re.insts, m.text
	for {
		m.steps++
		if m.steps > m.next {
			m.charge()
		}
		failed := false
		in := &insts[pc]
		if m.noted && !m.inLook && in.op != opMatch && m.note(pc, pos) {
			failed = true
		} else {
			switch in.op {
			case opMatch:
				return pos
			case opSet:
				if int(pos) >= len(text) {
					failed = true
				} else if c := text[pos]; c < utf8.RuneSelf {
					failed = !in.set.HasByte(c)
					pos++
				} else {
					r, n := utf8.DecodeRune(text[pos:])
					failed = !in.set.Has(r)
					pos += int32(n)
				}
				pc++
			case opStar:
				lo := pos
				pos = m.span(in, pc, pos)
				pc++
				if pos > lo {
					m.push(frame{pc, pos, lo})
				}
			case opGreedy:
				pos = m.span(in, pc, pos)
				failed = pos < 0
				pc++
			case opSplit:
				if in.begins != nil && !in.mayBegin(text, pos) {
					pc = in.y
					continue
				}
				m.push(frame{in.y, pos, -1})
				pc = in.x
			case opJump:
				pc = in.x
			case opLook:
				failed = m.look(in, pos) == in.neg
				pc = in.y
			case opAtomic:
				if pos = m.run(in.x, pos); pos < 0 {
					failed = true
				}
				pc = in.y
			case opAssert:
				failed = !m.assert(byte(in.n), int(pos))
				pc++
			}
		}
		if !failed {
			continue
		}
		if len(m.stack) == base {
			return -1
		}
		pc, pos = m.back()
	}
}

// push adds an open choice.
func (m *Machine) push(f frame) {
	if len(m.stack) == cap(m.stack) {
		m.chargeStack()
	}
	m.stack = append(m.stack, f)
}

// chargeStack charges for a stack twice as large.
//
//go:noinline
func (m *Machine) chargeStack() { m.work.Memory(24*cap(m.stack) + 64) }

// mayBegin reports whether a split's first alternative may begin at pos.
func (in *inst) mayBegin(text []byte, pos int32) bool {
	if int(pos) >= len(text) {
		return false
	}
	c := text[pos]
	return c >= utf8.RuneSelf || in.begins[c/64]>>(c%64)&1 != 0
}

// back returns where the last open choice continues, and removes a choice without
// further alternatives.
func (m *Machine) back() (pc, pos int32) {
	f := &m.stack[len(m.stack)-1]
	pc = f.pc
	if f.lo < 0 {
		pos = f.pos
		m.stack = m.stack[:len(m.stack)-1]
		return pc, pos
	}
	f.pos--
	for !utf8.RuneStart(m.text[f.pos]) {
		f.pos--
	}
	pos = f.pos
	if f.pos == f.lo {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return pc, pos
}

// span returns the end of the longest run of in's characters from pos. With marks in
// use, a run stops where the same run has failed before, because all longer runs have
// failed too. opGreedy cannot stop there, so span returns -1.
func (m *Machine) span(in *inst, pc, pos int32) int32 {
	text, set := m.text, in.set
	if in.n < 0 && !m.noted {
		start := pos
		for int(pos) < len(text) {
			if c := text[pos]; c < utf8.RuneSelf {
				if !set.HasByte(c) {
					break
				}
				pos++
				continue
			}
			r, n := utf8.DecodeRune(text[pos:])
			if !set.Has(r) {
				break
			}
			pos += int32(n)
		}
		m.steps += int(pos-start) / 8
		return pos
	}
	notes := m.noted && !m.inLook && in.n < 0
	for left := in.n; left != 0 && int(pos) < len(text); left-- {
		r, n := m.rune(pos)
		if !set.Has(r) {
			break
		}
		m.steps++
		pos += n
		if notes && m.note(pc, pos) {
			if in.op == opGreedy {
				return -1
			}
			break
		}
	}
	return pos
}

// look reports whether the body of a look-around matches at pos.
func (m *Machine) look(in *inst, pos int32) bool {
	if in.behind {
		if pos == 0 {
			return false
		}
		r, _ := utf8.DecodeLastRune(m.text[:pos])
		return in.set.Has(r)
	}
	// A look-ahead has bounded length, so it needs no marks.
	was := m.inLook
	m.inLook = true
	end := m.run(in.x, pos)
	m.inLook = was
	return end >= 0
}

func (m *Machine) assert(kind byte, pos int) bool {
	text := m.text
	switch kind {
	case '^': // Ruby's: the start of any line, but not the end of the text
		return pos == 0 || text[pos-1] == '\n' && pos < len(text)
	case '$':
		return pos == len(text) || text[pos] == '\n'
	case 'A':
		return pos == 0
	case 'z':
		return pos == len(text)
	case 'Z':
		return pos == len(text) || pos == len(text)-1 && text[pos] == '\n'
	}
	before, after := rune(-1), rune(-1)
	if pos > 0 {
		before, _ = utf8.DecodeLastRune(text[:pos])
	}
	if pos < len(text) {
		after, _ = utf8.DecodeRune(text[pos:])
	}
	words := wordSet()
	edge := words.Has(before) != words.Has(after)
	return edge == (kind == 'b')
}

// wordSet returns the set of \w, for \b and \B.
var wordSet = sync.OnceValue(func() *ucd.Set {
	rs, _ := ucd.Class(`\w`)
	return ucd.NewSet(rs)
})
