package tokens

import (
	"fmt"
	"testing"

	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
)

// BenchmarkBodyToIDs is the whole way of a request: scan, normalise, render,
// encode.
func BenchmarkBodyToIDs(b *testing.B) {
	for _, n := range []int{4000, 24000} {
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("tokens=%d/warm=%v", n, warm), func(b *testing.B) {
				m, err := LoadFolder(b.Context(), "../../.cache/models/qwen3", Flags{Transformers: "5.19.0"})
				if err != nil {
					b.Fatal(err)
				}
				l := NewLocal(LocalOptions{LocalSettings: LocalSettings{TrustUnverified: openai.FeatureChat, SampleEvery: -1},
					Endpoints: func(string) []Endpoint { return []Endpoint{{Version: "0.32.0", MaxLen: 1 << 20}} }})
				if err := l.Load("m", m); err != nil {
					b.Fatal(err)
				}
				l.CheckAll(b.Context())
				body := chattest.Conversation(n, "")
				ids := 0
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if !warm {
						b.StopTimer()
						body = chattest.Conversation(n, fmt.Sprint(" x", i))
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
