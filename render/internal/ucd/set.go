package ucd

import (
	"slices"
	"unicode/utf8"
)

// MaxRune is the last code point.
const MaxRune = utf8.MaxRune

// Set is an immutable set of code points. Has takes constant time: the set is a bitmap
// in pages of 256 code points, and equal pages share memory (a class of Unicode takes
// 5–15 kB).
type Set struct {
	ascii [2]uint64
	index [(MaxRune + 1) / 256]uint16
	pages [][4]uint64
	// Ranges are the set's code points as sorted, disjoint ranges.
	Ranges []Range
}

// NewSet returns the set of the code points in ranges, which may overlap and have any
// order.
func NewSet(ranges []Range) *Set {
	s := &Set{Ranges: Union(ranges)}
	seen := map[[4]uint64]uint16{}
	var page [4]uint64
	next := 0
	for p := range s.index {
		page = [4]uint64{}
		lo, hi := rune(p*256), rune(p*256+255)
		for next < len(s.Ranges) && s.Ranges[next].Hi < lo {
			next++
		}
		for i := next; i < len(s.Ranges) && s.Ranges[i].Lo <= hi; i++ {
			for r := max(lo, s.Ranges[i].Lo); r <= min(hi, s.Ranges[i].Hi); r++ {
				page[r&255>>6] |= 1 << (r & 63)
			}
		}
		n, ok := seen[page]
		if !ok {
			n = uint16(len(s.pages))
			seen[page] = n
			s.pages = append(s.pages, page)
		}
		s.index[p] = n
	}
	s.ascii = [2]uint64{s.pages[s.index[0]][0], s.pages[s.index[0]][1]}
	return s
}

// HasByte reports whether the ASCII character c is in the set.
func (s *Set) HasByte(c byte) bool { return s.ascii[c>>6&1]>>(c&63)&1 != 0 }

// Has reports whether r is in the set.
func (s *Set) Has(r rune) bool {
	if uint32(r) > MaxRune {
		return false
	}
	return s.pages[s.index[r>>8]][r&255>>6]>>(r&63)&1 != 0
}

// Union returns the ranges of all lists sorted; ranges that touch or overlap become
// one.
func Union(lists ...[]Range) []Range {
	var all []Range
	for _, l := range lists {
		all = append(all, l...)
	}
	slices.SortFunc(all, func(a, b Range) int { return int(a.Lo) - int(b.Lo) })
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Complement returns the ranges of the code points outside rs, which must be sorted and
// disjoint.
func Complement(rs []Range) []Range {
	var out []Range
	at := rune(0)
	for _, r := range rs {
		if r.Lo > at {
			out = append(out, Range{at, r.Lo - 1})
		}
		at = r.Hi + 1
	}
	if at <= MaxRune {
		out = append(out, Range{at, MaxRune})
	}
	return out
}

// Intersect returns the ranges of the code points in both lists, which must be sorted
// and disjoint.
func Intersect(a, b []Range) []Range {
	return Complement(Union(Complement(a), Complement(b)))
}
