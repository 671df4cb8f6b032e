package tokens

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/render/openai"
)

// conversation is a chat body of about n tokens of Qwen3; salt makes its texts
// new to the process.
func conversation(n int, salt string) []byte {
	line := "The quick brown fox jumps over the lazy dog, said the expert; nobody disagreed with claim number "
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You are terse. ` + salt + `"}`)
	for i, tokens := 0, 20; tokens < n; i++ {
		text := ""
		for j := range 8 {
			text += fmt.Sprintf("%s%d%s. ", line, i*8+j, salt)
		}
		fmt.Fprintf(&b, `,{"role":%q,"content":"%s"}`, [2]string{"user", "assistant"}[i%2], text)
		tokens += 8 * 24
	}
	return []byte(b.String() + `,{"role":"user","content":"And now?"}]}`)
}

// BenchmarkBodyToIDs is the whole way of a request: scan, normalise, render,
// encode.
func BenchmarkBodyToIDs(b *testing.B) {
	for _, n := range []int{4000, 24000} {
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("tokens=%d/warm=%v", n, warm), func(b *testing.B) {
				m, err := LoadFolder("../../.cache/models/qwen3", Flags{Transformers: "5.19.0"})
				if err != nil {
					b.Fatal(err)
				}
				l := NewLocal(LocalOptions{LocalSettings: LocalSettings{TrustUnverified: openai.FeatureChat, SampleEvery: -1},
					Endpoints: func(string) []Endpoint { return []Endpoint{{Version: "0.32.0", MaxLen: 1 << 20}} }})
				if err := l.Load("m", m); err != nil {
					b.Fatal(err)
				}
				l.CheckAll(b.Context())
				body := conversation(n, "")
				ids := 0
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if !warm {
						b.StopTimer()
						body = conversation(n, fmt.Sprint(" x", i))
						b.StartTimer()
					}
					req, err := openai.Parse(openai.Chat, body)
					if err != nil {
						b.Fatal(err)
					}
					result, err := l.Tokens(b.Context(), req, Served{Model: "m"})
					if err != nil {
						b.Fatal(err)
					}
					ids = len(result.Prompts[0].Tokens)
				}
				b.SetBytes(int64(len(body)))
				b.ReportMetric(float64(ids), "ids")
			})
		}
	}
}
