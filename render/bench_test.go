package render_test

import (
	"bytes"
	"fmt"
	"testing"

	"warmroute/render"
	"warmroute/render/testkit/chattest"
)

// BenchmarkCodedBodyToIDs is the way of 100 KB for the models that vLLM renders in
// code: a conversation that is new, and the next turn of one that is known.
func BenchmarkCodedBodyToIDs(b *testing.B) {
	for _, f := range codedFamilies {
		for _, next := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/next=%v", f.name, next), func(b *testing.B) {
				requests := server(b, f.folder(b), f.flags, render.CodedVersion, nil)
				body := chattest.Conversation(24000, "")
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					if !next {
						body = chattest.Conversation(24000, fmt.Sprint(" x", i))
					} else {
						turn := fmt.Sprintf(`,{"role":"assistant","content":"I see, number %d."},{"role":"user","content":"And now, after %d?"}]}`, i, i)
						body = append(bytes.TrimSuffix(body, []byte("]}")), turn...)
					}
					b.StartTimer()
					if _, err := requests.Tokenize("/v1/chat/completions", body); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(int64(len(body)))
			})
		}
	}
}
