package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"warmroute/render"
)

// conversation is a chat body of about n tokens; salt makes its texts
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

// BenchmarkCodedBodyToIDs is the way of 100 KB for the models that vLLM renders in
// code: a conversation that is new, and the next turn of one that is known.
func BenchmarkCodedBodyToIDs(b *testing.B) {
	for _, f := range codedFamilies {
		for _, next := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/next=%v", f.name, next), func(b *testing.B) {
				requests := server(b, f.folder(b), f.flags, render.CodedVersion, nil)
				body := conversation(24000, "")
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					if !next {
						body = conversation(24000, fmt.Sprint(" x", i))
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
