package ucd

import (
	"cmp"
	"slices"
	"sync"
	"unicode/utf8"

	"warmroute/render/work"
)

// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
const (
	hangulS, hangulL, hangulV, hangulT = 0xAC00, 0x1100, 0x1161, 0x11A7
	countL, countV, countT             = 19, 21, 28
	countS                             = countL * countV * countT
)

// Form is one normalization form as the reference's normalizer applies it.
type Form struct {
	t               *tables
	compat, compose bool
	// restless holds every rune that may change, move, or join the rune before it. The
	// text between two other runes is normalized on its own.
	restless *Set
}

// NFC, NFD, NFKC and NFKD return the four forms, built on first use.
var (
	NFC  = sync.OnceValue(func() *Form { return newForm(false, true) })
	NFD  = sync.OnceValue(func() *Form { return newForm(false, false) })
	NFKC = sync.OnceValue(func() *Form { return newForm(true, true) })
	NFKD = sync.OnceValue(func() *Form { return newForm(true, false) })
)

func newForm(compat, compose bool) *Form {
	f := &Form{t: load(), compat: compat, compose: compose}
	var rs []Range
	one := func(r rune) { rs = append(rs, Range{r, r}) }
	for r := range f.t.ccc {
		one(r)
	}
	s, b := Scratch{}, &work.Budget{}
	changes := func(m map[rune][]rune) {
		for r := range m {
			s.runes = f.segment(b, []byte(string(r)), &s)
			if len(s.runes) != 1 || s.runes[0] != r {
				one(r)
			}
		}
	}
	changes(f.t.canon)
	if compat {
		changes(f.t.compat)
	}
	if compose {
		for p := range f.t.compose {
			one(p[1])
		}
		rs = append(rs, Range{hangulV, hangulV + countV - 1}, Range{hangulT + 1, hangulT + countT - 1})
	} else {
		rs = append(rs, Range{hangulS, hangulS + countS - 1})
	}
	f.restless = NewSet(rs)
	return f
}

// Scratch is reusable memory of one goroutine for Append.
type Scratch struct {
	runes []rune
	marks []mark
}

type mark struct {
	r   rune
	ccc uint8
}

// Append appends the normalized form of src, valid UTF-8, to dst. Its cost is linear,
// except for the sorting of runs of combining marks. It charges b; its caller defers
// work.Catch.
func (f *Form) Append(b *work.Budget, dst, src []byte, s *Scratch) []byte {
	for len(src) > 0 {
		calm, start := f.calm(b, src)
		dst = append(dst, src[:start]...)
		if calm == len(src) {
			return dst
		}
		end := calm
		for end < len(src) {
			r, n := utf8.DecodeRune(src[end:])
			if !f.restless.Has(r) {
				break
			}
			end += n
		}
		s.runes = f.segment(b, src[start:end], s)
		for _, r := range s.runes {
			dst = utf8.AppendRune(dst, r)
		}
		src = src[end:]
	}
	return dst
}

// Normal reports whether src is certainly in the form already. A false answer may be
// wrong: Append then appends an equal text. It charges b as Append does.
func (f *Form) Normal(b *work.Budget, src []byte) bool {
	n, _ := f.calm(b, src)
	return n == len(src)
}

// calm returns the offsets of the first restless rune and of the rune before it, which
// it may join. Without a restless rune both are len(src).
func (f *Form) calm(b *work.Budget, src []byte) (first, before int) {
	charged := 0
	for i := 0; i < len(src); {
		if i-charged >= calmBytes {
			b.Step(calmBytes / 8)
			charged = i
		}
		if src[i] < 0x80 { // no ASCII character is restless
			run, n := src[i:min(len(src), i+calmBytes)], 1
			for n < len(run) && run[n] < 0x80 {
				n++
			}
			i += n
			before = i - 1
			continue
		}
		r, n := utf8.DecodeRune(src[i:])
		if f.restless.Has(r) {
			b.Step((i - charged) / 8)
			return i, before
		}
		before = i
		i += n
	}
	b.Step((len(src) - charged) / 8)
	return len(src), len(src)
}

// calmBytes is the number of bytes that calm reads between two charges.
const calmBytes = 4096

// segmentSteps is the cost of one rune in segment, its look-ups included.
const segmentSteps = 8

// segment returns the normalized runes of src, in the memory of s. All runes of src but
// the first are restless.
func (f *Form) segment(b *work.Budget, src []byte, s *Scratch) []rune {
	dst := s.runes[:0]
	s.marks = s.marks[:0]
	for len(src) > 0 {
		b.Step(segmentSteps)
		before := cap(s.marks)
		r, n := utf8.DecodeRune(src)
		src = src[n:]
		s.marks = f.decompose(s.marks, r)
		work.Grown(b, before, s.marks)
	}
	reorder(b, s.marks)
	if cap(dst) < len(s.marks) {
		b.Memory(4 * len(s.marks))
		dst = make([]rune, 0, len(s.marks))
	}
	if !f.compose {
		for _, m := range s.marks {
			dst = append(dst, m.r)
		}
		return dst
	}
	return f.join(dst, s.marks)
}

func (f *Form) decompose(dst []mark, r rune) []mark {
	if r >= hangulS && r < hangulS+countS {
		i := r - hangulS
		dst = append(dst, mark{hangulL + i/(countV*countT), 0}, mark{hangulV + i%(countV*countT)/countT, 0})
		if t := i % countT; t != 0 {
			dst = append(dst, mark{hangulT + t, 0})
		}
		return dst
	}
	d, ok := f.t.canon[r]
	if f.compat {
		if k, found := f.t.compat[r]; found {
			d, ok = k, true
		}
	}
	if !ok {
		return append(dst, mark{r, f.t.ccc[r]})
	}
	for _, c := range d {
		dst = append(dst, mark{c, f.t.ccc[c]})
	}
	return dst
}

// reorder sorts each run of combining marks by class; marks of one class keep their
// order.
func reorder(b *work.Budget, m []mark) {
	for i := 0; i < len(m); i++ {
		if m[i].ccc == 0 {
			continue
		}
		j := i
		for j < len(m) && m[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(m[i:j], func(x, y mark) int { b.Step(1); return cmp.Compare(x.ccc, y.ccc) })
		i = j
	}
}

// join composes canonically: a rune joins the last starter unless another starter or a
// rune of its own class stands between them.
func (f *Form) join(dst []rune, m []mark) []rune {
	starter, last := -1, uint8(0)
	for _, c := range m {
		if starter >= 0 && (last < c.ccc || starter == len(dst)-1) {
			if r, ok := f.pair(dst[starter], c.r); ok {
				dst[starter] = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(dst)
		}
		last = c.ccc
		dst = append(dst, c.r)
	}
	return dst
}

func (f *Form) pair(a, b rune) (rune, bool) {
	if a >= hangulL && a < hangulL+countL && b >= hangulV && b < hangulV+countV {
		return hangulS + ((a-hangulL)*countV+b-hangulV)*countT, true
	}
	if a >= hangulS && a < hangulS+countS && (a-hangulS)%countT == 0 && b > hangulT && b < hangulT+countT {
		return a + b - hangulT, true
	}
	r, ok := f.t.compose[[2]rune{a, b}]
	return r, ok
}
