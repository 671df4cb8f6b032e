package pyvalue

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"unicode"

	"warmroute/render/work"
)

// The digests are over every code point, made by CPython (gen/unicode_digest.py).
func TestTextAgainstCPython(t *testing.T) {
	pyBool := func(b bool) string {
		if b {
			return "True"
		}
		return "False"
	}
	perRune := func(f func(rune) bool) func(string) string {
		return func(s string) string { return pyBool(f([]rune(s)[0])) }
	}
	b := new(work.Budget)
	perText := func(f func(*work.Budget, string) bool) func(string) string {
		return func(s string) string { return pyBool(f(b, s)) }
	}
	text := func(f func(*work.Budget, string) string) func(string) string {
		return func(s string) string { return f(b, s) }
	}
	funcs := map[string]func(string) string{
		"upper": text(Upper), "lower": text(Lower), "title": text(Title), "casefold": text(CaseFold), "swapcase": text(SwapCase),
		"capitalize": text(Capitalize),
		"repr":       func(s string) string { return string(AppendQuoted(nil, s)) },
		"isalpha":    perRune(unicode.IsLetter), "isdecimal": perRune(IsDecimal), "isdigit": perRune(IsDigit),
		"isnumeric": perRune(IsNumeric), "isalnum": perRune(IsAlnum), "isspace": perRune(IsSpace),
		"islower": perText(IsLowerText), "isupper": perText(IsUpperText), "istitle": perText(IsTitleText),
		"isprintable": perRune(IsPrintable), "isidentifier": perText(IsIdentifier),
		"iscontinue": func(s string) string { return pyBool(IsIdentifier(b, "a"+s)) },
		"sigma":      func(s string) string { return Lower(b, "A"+s+"Σ"+s) },
	}
	f, err := os.Open("testdata/unicode.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := 0
	for sc := bufio.NewScanner(f); sc.Scan(); seen++ {
		name, want, _ := strings.Cut(sc.Text(), " ")
		fn := funcs[name]
		if fn == nil {
			t.Fatalf("no function for %q", name)
		}
		h := sha256.New()
		var buf []byte
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if r < 0xD800 || r >= 0xE000 {
				buf = append(append(buf, fn(string(r))...), '\n')
			}
			if len(buf) > 1<<15 || r == unicode.MaxRune {
				h.Write(buf)
				buf = buf[:0]
			}
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			t.Errorf("%s differs from CPython over all code points", name)
		}
	}
	if seen != len(funcs) {
		t.Errorf("checked %d of %d functions", seen, len(funcs))
	}
}
