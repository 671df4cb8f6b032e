package onig

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"warmroute/render/testkit/oracle"
)

// patterns of published tokenizers and of every construct the package takes.
var patterns = []string{
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`\p{N}{1,3}`,
	"[一-龥\u3040-ゟ゠-ヿ]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	`[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`,
	`[0-9][0-9][0-9]`, `(?<=\d)(?=(?:\d{3})+)x|(?:ab|a)+c`[len(`(?<=\d)(?=(?:\d{3})+)x|`):],
	`(?>a+b?|x)c|\n^|a$`, `\bfoo\b|\B\w|\W`, `(?i)abk|s+|[a-f]`, `a{2}b{,2}|x{2,}?y|[[:alpha:]]\d`,
	`(?m:a.b)|a.b|(?<!a)c|(?<=\s)d`, `a++b|a*?b|(?:a|b)*?c|(?:xy)?+z`, `\A\w+|\w\z|[^\W\d_]+`, `\h+|\H`, `[a\-z]+|[-x]+|[\]\[]|[^^a]`,
	`\x41|\x{1F600}|\u00e9|[\x00-\x1f]+|\t|\\`, `(a|b|ab)(c|bcd)(d*)|(?:a?b|a)+d`, `\p{Greek}+|\p{^L}+|\P{Lu}`, ` ?\p{Punct}+|\p{Alpha}{2,4}[\p{Z}]?`,
	`[^\s]+\s*`, `.*\n|.+`, `(?:\r\n|\n)+|[^\r\n]+`, `[^\w]+|[[:word:]]|\w`, `[[:punct:]]+|\p{Punct}`, `'(?i:s)|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|.`,
}

var pieces = strings.Split("a|b|ab|abc|A|AB|Z|k|K|ſ|s|S|'s|'S|'ſ|'ll|'LL|'re| |  |   |\t|\n|\r\n|\n\n|1|12|123|1234|١|½|Ⅷ|é|é|ß|中|中文|あ|ア|한|ﬁ|.|,|!|?!|-|_|/|//|[|]|\\|^|$|x|xy|xxy|z|c|cd|d|foo|foo bar|Foo|FOO|ǅ|ʰ|\u0300|\u0345|\u200d|\u00a0|\u3000|\u2028|\u0085|😀|👩‍🚀|😀|\x00|\x1f|α|Ω|Я|я|א|ا|क|क्|ก|\U0001F1E6|\U000E0041|\ue000|\u0378|\u1c89|\ufffd", "|")

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(14) {
		if r.IntN(12) == 0 {
			c := rune(r.IntN(0x110000))
			if c < 0xD800 || c > 0xDFFF {
				b.WriteRune(c)
			}
			continue
		}
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

func all(re *Regexp, m *Machine, text string) [][2]int {
	m.Reset(nil, re, []byte(text))
	return rest(m)
}

// rest returns the matches of a text that m was reset to.
func rest(m *Machine) [][2]int {
	out := [][2]int{}
	for pos := 0; ; {
		s, e, ok := m.Next(pos)
		if !ok {
			return out
		}
		out = append(out, [2]int{s, e})
		pos = e
	}
}

func TestMatchesAreOnigurumas(t *testing.T) {
	ref, err := oracle.Start("tokenizers_fuzz.py")
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	var plain, noting Machine
	for _, p := range patterns {
		re, err := Compile(nil, p)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		texts := make([]string, 400)
		for i := range texts {
			texts[i] = randomText(rnd)
		}
		var got struct{ Matches [][][2]int }
		if err := ref.Ask(map[string]any{"op": "split", "pattern": p, "texts": texts}, &got); err != nil {
			t.Errorf("%q: %v", p, err)
			continue
		}
		bad := 0
		for i, text := range texts {
			want := got.Matches[i]
			if a := all(re, &plain, text); !slices.Equal(a, want) {
				if bad++; bad < 3 {
					t.Errorf("%q on %+q: %v, want %v", p, text, a, want)
				}
			}
			if a := allNoting(re, &noting, text); !slices.Equal(a, want) {
				if bad++; bad < 3 {
					t.Errorf("%q on %+q with notes: %v, want %v", p, text, a, want)
				}
			}
		}
	}
}

// allNoting matches as after the step limit.
func allNoting(re *Regexp, m *Machine, text string) [][2]int {
	m.Reset(nil, re, []byte(text))
	m.limit, m.next = 0, 0
	return rest(m)
}

func TestRefusals(t *testing.T) {
	for _, p := range []string{
		`(a)\1`, `\p{Nonsense}`, `a*`, `(?=a)`, `\Ka`, `(?i:ss)`, `(?i:é)`, `(?i:\p{Lu})`, `(?=a*b)a`, `(?<=ab)c`, `(`, `a)`, `[a`, `a{300}`,
		`(?<n>a)\k<n>`, `\Xa`, `+`, `\p{Cn}a`, `(?i:[^a])`, strings.Repeat("(", 500) + "a" + strings.Repeat(")", 500), `(?:a?b?)*c`, "\xff", `\`, `a{2}?`,
		strings.Repeat("(?:", 20) + "a" + strings.Repeat("){200}", 20),
	} {
		if _, err := Compile(nil, p); err == nil {
			t.Errorf("%.40q is taken", p)
		} else if !strings.HasPrefix(err.Error(), "regular expression ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: not one sentence: %v", p, err)
		}
	}
}

// Cost must stay linear where naive backtracking is quadratic or worse.
func TestHostileTextIsBounded(t *testing.T) {
	const n = 100_000
	for _, c := range []struct{ pattern, text string }{
		{`a+b`, strings.Repeat("a", n)},
		{`(?:a+)+b`, strings.Repeat("a", n)},
		{`(?:a|aa)+b`, strings.Repeat("a", n)},
		{`\s*[\r\n]+|\S`, strings.Repeat(" ", n)},
		{`a*a*a*a*b`, strings.Repeat("a", n)},
		{`(?:a*?b|a)+c`, strings.Repeat("a", n)},
		{`(?>a+)b`, strings.Repeat("a", n)},
		{patterns[2], strings.Repeat("A", n)},
		{patterns[0], strings.Repeat(" ", n) + "x"},
	} {
		re, err := Compile(nil, c.pattern)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		var m Machine
		all(re, &m, c.text)
		if limit := 8*stepsPerByte*n + len(re.insts)*n*2; m.Steps() > limit {
			t.Errorf("%q takes %d steps on %d bytes, more than %d", c.pattern, m.Steps(), len(c.text), limit)
		}
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	re, err := Compile(nil, patterns[0])
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.Repeat("The quick brown fox, 123 don't 中文\n\n  x ", 20))
	var m Machine
	if n := testing.AllocsPerRun(20, func() {
		m.Reset(nil, re, text)
		for pos := 0; ; {
			_, e, ok := m.Next(pos)
			if !ok {
				break
			}
			pos = e
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCompile(f *testing.F) {
	for _, p := range patterns {
		f.Add(p, "ab 12\n")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		re, err := Compile(nil, pattern)
		if err != nil {
			return
		}
		text = strings.ToValidUTF8(text, "")
		var m, n Machine
		a, b := all(re, &m, text), allNoting(re, &n, text)
		if !slices.Equal(a, b) {
			t.Fatalf("%q on %q: %v, with notes %v", pattern, text, a, b)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	re, err := Compile(nil, patterns[0])
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, and 123 times don't stop.\n", 1000))
	var m Machine
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		m.Reset(nil, re, text)
		for pos := 0; ; {
			_, e, ok := m.Next(pos)
			if !ok {
				break
			}
			pos = e
		}
	}
	b.ReportMetric(float64(m.Steps())/float64(len(text)), "steps/B")
}

// Choices that a character rules out, and characters that need not be given back, take
// no steps: ordinary text takes few.
func TestStepsOfOrdinaryText(t *testing.T) {
	text := strings.Repeat("\tif err := Frob(x[i], \"a word\"); err != nil { // it's what GPTs do, mostly\n", 20)
	re, err := Compile(nil, patterns[2])
	if err != nil {
		t.Fatal(err)
	}
	var m Machine
	all(re, &m, text)
	if got := float64(m.Steps()) / float64(len(text)); got > 3.5 {
		t.Errorf("%.2f steps a byte, where 3.1 do and 5.3 were taken before", got)
	}
}
