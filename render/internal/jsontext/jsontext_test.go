package jsontext

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// check reads a text as a string and compares with encoding/json, which takes more:
// invalid UTF-8 and lone surrogates.
func check(t *testing.T, text []byte) {
	t.Helper()
	if len(text) == 0 || text[0] != '"' {
		return
	}
	var gaps Gaps
	end, escaped, problem := String(text, 0, &gaps)
	if again, _, p := String(text, 0, nil); p != problem || p == OK && again != end {
		t.Fatalf("%q: %d %v, without gaps %d %v", text, end, problem, again, p)
	}
	if problem != OK {
		var s string
		if json.Unmarshal(text, &s) == nil && utf8.Valid(text) && !strings.ContainsRune(s, utf8.RuneError) {
			t.Fatalf("%q is refused: %v", text, problem)
		}
		return
	}
	var want string
	if err := json.Unmarshal(text[:end], &want); err != nil {
		t.Fatalf("%q is taken, encoding/json says %v", text[:end], err)
	}
	raw := text[1 : end-1]
	if escaped != bytes.ContainsRune(raw, '\\') || escaped != (len(gaps) > 0) {
		t.Fatalf("%q: escaped %v with %d gaps", raw, escaped, len(gaps))
	}
	if got := AppendText([]byte("x"), raw, nil); string(got) != "x"+want {
		t.Fatalf("%q is read as %q, want %q", raw, got[1:], want)
	}
	if escaped {
		gaps = append(gaps, 3, 1, 4) // another string's
		if got := AppendTextAt([]byte("x"), raw, gaps, nil); string(got) != "x"+want {
			t.Fatalf("%q is read as %q by its gaps, want %q", raw, got[1:], want)
		}
	}
}

// TestStrings builds strings of the bytes that the reader distinguishes, at every offset
// in a word.
func TestStrings(t *testing.T) {
	pieces := []string{`\n`, `\"`, `\\`, `\/`, `é`, `漢字`, `\u00e9`, `\u0041`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\ud83d\u0041`, `\ud83d\u00`, "\x1f", "\x7f", "\x80",
		`\`, `\x`, `\u12`, `"`, "a", "plain", strings.Repeat("b", 13), strings.Repeat("c", 254), strings.Repeat("d", 255), strings.Repeat("e", 600)}
	r := rand.New(rand.NewPCG(1, 2))
	for range 40_000 {
		text := `"`
		for range r.IntN(7) {
			n := len(pieces)
			if r.IntN(2) == 0 {
				n = 9
			}
			text += pieces[r.IntN(n)]
		}
		check(t, []byte(text+`"`+pieces[r.IntN(len(pieces))]))
	}
}

// TestLongStrings: a string is the same whether it is read at once or in windows, wherever
// an escape lies across two windows.
func TestLongStrings(t *testing.T) {
	pieces := []string{`\n`, `\"`, `\\`, "é", "漢字", `\u00e9`, `\ud83d\ude00`, "plain text", strings.Repeat("b", 1000)}
	broken := []string{"", "", "", `\ud83d`, "\x1f", "\x80", `\x`}
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var b strings.Builder
		b.WriteByte('"')
		few := pieces[:1+r.IntN(len(pieces))]
		for b.Len() < window*2+r.IntN(window) {
			for range 100 {
				b.WriteString(few[r.IntN(len(few))])
			}
		}
		b.WriteString(broken[r.IntN(len(broken))] + `plain" and more`)
		text := []byte(b.String())
		var gaps, windows Gaps
		end, escaped, problem := String(text, 0, &gaps)
		end2, escaped2, problem2 := LongString(text, 0, &windows, nil)
		if problem != problem2 || problem == OK && (end != end2 || escaped != escaped2 || !bytes.Equal(gaps, windows)) {
			t.Fatalf("pieces of %q: %d %v %v with %d gaps, in windows %d %v %v with %d", few, end, escaped, problem, len(gaps), end2, escaped2, problem2, len(windows))
		}
		if problem == OK {
			check(t, text)
		}
	}
}

func FuzzString(f *testing.F) {
	f.Add([]byte(`"a\n\ud83d\ude00é" x`))
	f.Add([]byte("\"\\\\\xff\""))
	f.Fuzz(check)
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"-0.5e+3", "01", "1.", "-", "-Infinity", "12,3", "1e5"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 || text[0] != '-' && text[0]-'0' > 9 {
			return
		}
		end, float, ok := Number(text, 0)
		if ok && string(text[:end]) == "-Infinity" {
			return
		}
		if ok != json.Valid(text[:end]) {
			t.Fatalf("%q: %v to %d", text, ok, end)
		}
		if ok && float != bytes.ContainsAny(text[:end], ".eE") {
			t.Fatalf("%q: float %v", text[:end], float)
		}
		if ok && end < len(text) && json.Valid(text[:end+1]) && text[end] > ' ' {
			t.Fatalf("%q ends at %d", text, end)
		}
	})
}
