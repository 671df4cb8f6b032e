package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"warmroute/render/testkit/race"
	"warmroute/render/work"
)

// steps returns the steps of encoding a text: merging and matching together.
func steps(tok *Tokenizer, text string) int {
	var s scratch
	b := new(work.Budget)
	s.charge(b)
	tok.encode(nil, []byte(text), true, &s)
	steps, _ := b.Spent()
	return steps
}

// Doubling a hostile text may not much more than double the work, on any
// tokenizer; and no text takes seconds.
func TestHostileTextIsBounded(t *testing.T) {
	n := 1 << 17
	if race.Enabled {
		n >>= 3
	}
	for _, name := range someModels() {
		tok := model(t, name)
		for what, unit := range map[string]string{
			"one letter": "a", "one capital": "A", "digits": "7", "spaces": " ", "newlines": "\n", "marks": "\u0323\u0301", "hangul parts": "\u1112\u1161", "han": "中",
			"word marks": "▁", "half tokens": "<|im_", "tokens": "<|im_end|><｜User｜><start_of_turn><s>", "invalid": "\xff\xc3", "zeros": "\x00", "mixed": "aA1 !\n", "quotes": "'", "emoji": "👩‍🚀",
		} {
			half, whole := strings.Repeat(unit, n/2/len(unit)), strings.Repeat(unit, n/len(unit))
			start := time.Now()
			a, b := steps(tok, half), steps(tok, whole)
			if b > 3*a+10_000 || b > 100*n {
				t.Errorf("%s, %s: %d steps for %d bytes, %d for %d", name, what, a, len(half), b, len(whole))
			}
			if took := time.Since(start); took > 20*time.Second { // a hang, not a benchmark
				t.Errorf("%s, %s: %v", name, what, took)
			}
		}
	}
}

func TestInvalidBytesCountAsReplacement(t *testing.T) {
	tok := model(t, "qwen3")
	if got, want := tok.Append(nil, nil, []byte("a\xff\xe4\xb8b"), false), tok.Append(nil, nil, []byte("a\ufffd\ufffd\ufffdb"), false); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The merging of few symbols and of many must agree, for a text's tokens may
// not depend on which is used.
func TestBothMergesAgree(t *testing.T) {
	for _, name := range someModels() {
		tok := model(t, name)
		many := tok.model
		many.scanMax = 0
		w := merger{work: new(work.Budget)}
		for _, text := range goldenStrings(t) {
			for word := range strings.SplitSeq(text, " ") {
				if word == "" || utf8.RuneCountInString(word) > scanSymbols {
					continue
				}
				if a, b := tok.model.merge(nil, []byte(word), &w), many.merge(nil, []byte(word), &w); !slices.Equal(a, b) {
					t.Errorf("%s: %q: %v by scanning, %v by heap", name, word, a, b)
				}
			}
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range goldenStrings(f)[:100] {
		f.Add(s, uint16(3))
	}
	f.Fuzz(func(t *testing.T, text string, cut uint16) {
		for _, name := range []string{"llama2", "qwen3"} {
			tok := model(t, name)
			whole := tok.Append(nil, nil, []byte(text), false)
			// Text behind an added token is encoded as if alone.
			end := map[string]string{"llama2": "</s>", "qwen3": "<|im_end|>"}[name]
			i := 0
			if len(text) > 0 {
				i = int(cut) % len(text)
			}
			for i > 0 && !utf8.RuneStart(text[i]) {
				i--
			}
			id, _ := tok.TokenID(end)
			parts := append(tok.Append(nil, nil, []byte(text[:i]), false), id)
			parts = tok.Append(nil, parts, []byte(text[i:]), false)
			joined := tok.Append(nil, nil, []byte(text[:i]+end+text[i:]), false)
			if utf8.ValidString(text) && !strings.Contains(text, "<") && !slices.Equal(parts, joined) {
				t.Errorf("%s: %q: %v, in parts %v", name, text, joined, parts)
			}
			s, err := NewStore(tok, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got := s.Append(nil, nil, []byte(text), false); !slices.Equal(got, whole) {
					t.Errorf("%s: %q: the store gives other ids", name, text)
				}
			}
		}
	})
}

func FuzzTokenizerJSON(f *testing.F) {
	for _, file := range cases() {
		f.Add([]byte(file), "a the <s> 123 é")
	}
	f.Add([]byte(`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`), "abab")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := Parse(file, Options{WordCache: -1})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a sentence: %v", err)
			}
			return
		}
		a := tok.Append(nil, nil, []byte(text), true)
		if b := tok.Append(nil, nil, []byte(text), true); !slices.Equal(a, b) {
			t.Errorf("%v, then %v", a, b)
		}
	})
}
