package prefixhash

import (
	"slices"
	"sync"
)

// maxMarked is where marks end, in tokens: beyond every context length.
const maxMarked = 4 << 20

// steps is how far marks are from each other.
type steps struct {
	part int // so many go into the length of the prompt up to the next mark
	most int // tokens
}

// Texts have fewer marks than token ids, since a text's history is all that is known of its
// caches, and takes memory for each of them.
var (
	idSteps   = steps{part: 32, most: 256}
	textSteps = steps{part: 8, most: 1024}
)

// Marks are the positions along a prompt for which a router remembers a key: close to each
// other at the beginning, where short prompts differ, and further apart the longer the
// prompt is. All are whole numbers of units. Marks are immutable.
type Marks struct {
	unit int
	last []int32 // by mark, the number of the unit that ends there
}

var marksOf sync.Map // unit → *Marks

// MarksOf returns the marks of prompts in blocks of that many tokens, at least 1. Those of
// TextUnit are TextMarks: routers tell each other nothing of marks but their unit.
func MarksOf(unit int) *Marks {
	if unit == TextUnit {
		return TextMarks
	}
	if m, ok := marksOf.Load(unit); ok {
		return m.(*Marks)
	}
	of, _ := marksOf.LoadOrStore(unit, newMarks(unit, idSteps))
	return of.(*Marks)
}

func newMarks(unit int, s steps) *Marks {
	m := &Marks{unit: unit}
	for at := 0; at < maxMarked; {
		step := min(max(at/s.part, TextUnit), s.most)
		at += max(1, step/unit) * unit
		m.last = append(m.last, int32(at/unit-1))
	}
	m.last = slices.Clip(m.last)
	return m
}

// Unit returns the unit, in tokens.
func (m *Marks) Unit() int { return m.unit }

// Len returns the number of marks.
func (m *Marks) Len() int { return len(m.last) }

// End returns the tokens up to the nth mark, 0 for n = 0.
func (m *Marks) End(n int) int {
	if n == 0 {
		return 0
	}
	return (int(m.last[n-1]) + 1) * m.unit
}

// Within returns the number of marks of a prompt of that many tokens.
func (m *Marks) Within(tokens int) int {
	n, found := slices.BinarySearch(m.last, int32(min(tokens, maxMarked)/m.unit-1))
	if found {
		n++
	}
	return n
}

// AppendPicked appends those of the keys of a prompt's units that are at marks.
func (m *Marks) AppendPicked(dst, keys []Key) []Key {
	for _, i := range m.last[:m.Within(len(keys)*m.unit)] {
		dst = append(dst, keys[i])
	}
	return dst
}

// Spread appends a key for each unit up to the last mark of keys, which are of a prompt's
// marks. Prompts with the same keys have the same ones.
func (m *Marks) Spread(dst, keys []Key) []Key {
	for i, k := range keys {
		for at := m.End(i) + m.unit; at < m.End(i+1); at += m.unit {
			dst = append(dst, Link(k, Content(at)))
		}
		dst = append(dst, k)
	}
	return dst
}
