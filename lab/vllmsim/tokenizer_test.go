package vllmsim

import (
	"slices"
	"strings"
	"testing"
)

func TestTokenizer(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"hello world":              "hel|lo| wo|rld",
		"a  b":                     "a| | b",
		"x\n\n y":                  "x|\n\n| y",
		"end.<|im_end|>\n":         "end|.|<|im_end|>|\n",
		" <|im_start|>user\nHi 42": " |<|im_start|>|use|r|\n|Hi| 42",
		"naïve":                    "na|\xc3\xaf|ve",
	} {
		var pieces []string
		for _, id := range encode(nil, text) {
			pieces = append(pieces, string(decode(nil, id)))
		}
		if got := strings.Join(pieces, "|"); got != want {
			t.Errorf("%q is cut into %q, want %q", text, got, want)
		}
	}
}

// FuzzTokenizer: decoding gives the text back, and every id is in the vocabulary.
func FuzzTokenizer(f *testing.F) {
	for _, s := range []string{"The long person, 1024 times.", "<|im_start|>system\n<|im_end", "\xff\xfe  \t x", "日本語 text"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := encode(nil, text)
		if got := decodeAll(ids); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		for _, id := range ids {
			if id >= vocabulary() {
				t.Errorf("id %d is beyond the vocabulary", id)
			}
		}
	})
}

// TestSpeech: an answer's text encodes to the tokens spoken, however long it is.
func TestSpeech(t *testing.T) {
	s := newSpeech(1, []uint32{1, 2, 3})
	var spoken []uint32
	for n := range 500 {
		spoken = append(spoken, s.next())
		if got := encode(nil, decodeAll(spoken)); !slices.Equal(got, spoken) {
			t.Fatalf("after %d tokens %q encodes to %d tokens", n+1, decodeAll(spoken), len(got))
		}
	}
	if again := newSpeech(1, []uint32{1, 2, 3}); again.next() != spoken[0] {
		t.Error("the same prompt is answered differently")
	}
}
