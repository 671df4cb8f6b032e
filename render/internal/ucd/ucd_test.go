package ucd

import (
	"strings"
	"testing"

	"warmroute/render/work"
)

func TestTablesAreTheReferences(t *testing.T) {
	count := func(names ...string) (n int) {
		for _, name := range names {
			rs, ok := Class(name)
			if !ok {
				t.Fatalf("no class %s", name)
			}
			for _, r := range rs {
				n += int(r.Hi-r.Lo) + 1
			}
		}
		return n
	}
	// Unicode 16 has 141,028 letters; Go 1.26 has thousands fewer.
	if n := count("Lu", "Ll", "Lt", "Lm", "Lo"); n != 141028 {
		t.Errorf("L has %d code points, want 141028", n)
	}
	if n := count(`\s`); n != 25 {
		t.Errorf(`\s has %d code points, want 25`, n)
	}
	if n := count("rust_space"); n != 25 {
		t.Errorf("rust_space has %d code points, want 25", n)
	}
}

func TestSetAlgebra(t *testing.T) {
	l, _ := Class("Lu")
	n, _ := Class("Nd")
	s := NewSet(Union(l, n))
	for r := rune(0); r <= MaxRune; r += 7 {
		in := func(rs []Range) bool {
			for _, x := range rs {
				if x.Lo <= r && r <= x.Hi {
					return true
				}
			}
			return false
		}
		if s.Has(r) != (in(l) || in(n)) {
			t.Fatalf("Has(%U) = %v", r, s.Has(r))
		}
	}
	if got := Intersect(s.Ranges, Complement(l)); len(got) != len(n) {
		t.Errorf("(Lu ∪ Nd) \\ Lu has %d ranges, want Nd's %d", len(got), len(n))
	}
	if s.Has(-1) || s.Has(MaxRune+1) {
		t.Error("a set holds something that is no code point")
	}
}

func TestForms(t *testing.T) {
	var s Scratch
	for _, c := range []struct {
		name, in, want string
		f              *Form
	}{
		{"compose", "e\u0301", "é", NFC()},
		{"decompose", "é", "e\u0301", NFD()},
		{"order", "a\u0301\u0323", "ạ\u0301", NFC()},
		{"blocked", "a\u0323\u0323\u0301", "ạ\u0323\u0301", NFC()},
		{"hangul", "\u1112\u1161\u11AB", "한", NFC()},
		{"hangul apart", "한", "\u1112\u1161\u11AB", NFD()},
		{"singleton", "\u212B", "Å", NFC()},
		{"excluded", "\u0958", "\u0915\u093C", NFC()},
		{"compat", "ﬁ①", "fi1", NFKC()},
		{"a tag is no letter", "\U000E0079\u0301", "\U000E0079\u0301", NFC()},
		{"no joiner after 30 marks", "a" + strings.Repeat("\u0300\u0316", 40), "à" + strings.Repeat("\u0316", 40)[:0] + "", NFC()},
	} {
		want := c.want
		if c.name == "no joiner after 30 marks" {
			want = "à" + strings.Repeat("\u0316", 40) + strings.Repeat("\u0300", 39)
		}
		if got := string(c.f.Append(new(work.Budget), nil, []byte(c.in), &s)); got != want {
			t.Errorf("%s: %+q, want %+q", c.name, got, want)
		}
	}
	plain := []byte("plain text, déjà vu, 한국어, 中文 and so on")
	b := new(work.Budget)
	if !NFC().Normal(b, plain) {
		t.Error("composed text is not seen as normal")
	}
	if n := testing.AllocsPerRun(100, func() { NFC().Normal(b, plain) }); n != 0 {
		t.Errorf("Normal allocates %v times", n)
	}
}
