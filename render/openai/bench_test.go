package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"warmroute/render/testkit/race"
)

// chatBody is a conversation of about n bytes: sentences, line breaks, quotes.
func chatBody(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"some-model","stream":true,"max_tokens":256,"messages":[{"role":"system","content":"You are terse."}`)
	line := `The quick brown fox jumps over the lazy dog, said the \"expert\", and nobody disagreed with that claim at all.\n`
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `,{"role":%q,"content":"%s"}`, [2]string{"user", "assistant"}[i%2], strings.Repeat(line, 12))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{16 << 10, 220 << 10} {
		body := chatBody(n)
		b.Run(fmt.Sprintf("%dKB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(Chat, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	long := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("plain words only ", 14000) + `"}]}`)
	b.Run("one string", func(b *testing.B) {
		b.SetBytes(int64(len(long)))
		for b.Loop() {
			if _, err := Parse(Chat, long); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestParseAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	body := chatBody(220 << 10)
	if _, err := Parse(Chat, body); err != nil {
		t.Fatal(err)
	}
	// The Request and the model's name; the rest is pooled or points into the body.
	if n := testing.AllocsPerRun(50, func() { _, _ = Parse(Chat, body) }); n > 4 {
		t.Errorf("Parse allocates %v times", n)
	}
	r, _ := Parse(Chat, body)
	dst := r.AppendText(nil, math.MaxInt)
	if n := testing.AllocsPerRun(50, func() { dst = r.AppendText(dst[:0], math.MaxInt) }); n > 2 { // its scanner and closure
		t.Errorf("AppendText allocates %v times", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d\ude00"}]}]}`,
		`{"model":"m","prompt":[[1,2],[3]],"cache_salt":"s"}`, `{"model":"m","input":"x","a":-Infinity}`, `[1,{"a":NaN}]`, "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := string(body)
		for _, route := range Routes {
			r, err := Parse(route, body)
			if string(body) != before {
				t.Fatal("the body was changed")
			}
			why := reasonOf(err)
			if err == nil {
				text := r.AppendText(nil, math.MaxInt)
				if !utf8.Valid(text) {
					t.Fatal("serialisation is not UTF-8")
				}
			} else if why == "" {
				t.Fatalf("error without a reason: %v", err)
			}
			// Go's decoder is the oracle for syntax: it takes less than Python
			// (no NaN, no BOM) and more (invalid UTF-8, lone surrogates, duplicates).
			if json.Valid(body) && why == UnreadableJSON {
				t.Fatalf("refused valid JSON %q", body)
			}
			if !json.Valid(body) && err == nil && !strings.Contains(before, "NaN") && !strings.Contains(before, "Infinity") && !strings.HasPrefix(before, bom) {
				t.Fatalf("took invalid JSON %q", body)
			}
		}
	})
}
