package ucd

import (
	_ "embed"
	"encoding/binary"
	"sync"
)

//go:embed ucd.bin
var data []byte

// Range is an inclusive run of code points.
type Range struct{ Lo, Hi rune }

type tables struct {
	classes map[string][]Range
	ccc     map[rune]uint8
	canon   map[rune][]rune // full canonical decompositions, Hangul left to arithmetic
	compat  map[rune][]rune // full compatibility decompositions that differ from canon
	compose map[[2]rune]rune
}

// load decodes ucd.bin once, on first use (about 1 ms). The file is part of
// the program, so a malformed one is a programming error.
var load = sync.OnceValue(func() *tables {
	r := reader{data}
	t := &tables{classes: map[string][]Range{}, ccc: map[rune]uint8{}, compose: map[[2]rune]rune{}}
	for n := r.num(); n > 0; n-- {
		name := r.text()
		rs := make([]Range, r.num())
		last := rune(0)
		for i := range rs {
			lo := last + rune(r.num())
			last = lo + rune(r.num())
			rs[i] = Range{lo, last}
		}
		t.classes[name] = rs
	}
	last := rune(0)
	for n := r.num(); n > 0; n-- {
		last += rune(r.num())
		t.ccc[last] = uint8(r.num())
	}
	t.canon = r.decompositions()
	t.compat = r.decompositions()
	for n := r.num(); n > 0; n-- {
		a, b := rune(r.num()), rune(r.num())
		t.compose[[2]rune{a, b}] = rune(r.num())
	}
	return t
})

type reader struct{ b []byte }

func (r *reader) num() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		panic("ucd: ucd.bin is cut short")
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) text() string {
	n := r.num()
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) decompositions() map[rune][]rune {
	n := r.num()
	m := make(map[rune][]rune, n)
	last := rune(0)
	for ; n > 0; n-- {
		last += rune(r.num())
		d := make([]rune, r.num())
		for i := range d {
			d[i] = rune(r.num())
		}
		m[last] = d
	}
	return m
}

// Class returns the ranges of a named class: a general category ("Lu"), a
// script ("Han"), a property ("Alphabetic"), a POSIX bracket ("posix_alpha"),
// an escape (`\w`, `\s`, `\d`, `\h`) as Oniguruma has it, or one of the
// reference's Rust classes ("rust_word", "rust_space", "rust_digit",
// "rust_punct"). Callers must not change the result.
func Class(name string) ([]Range, bool) {
	rs, ok := load().classes[name]
	return rs, ok
}
