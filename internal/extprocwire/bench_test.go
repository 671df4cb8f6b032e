package extprocwire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
)

// written has the messages on which the encoders are compared, by name.
func written() map[string]*response {
	return map[string]*response{
		"plain": plainAnswers()[0],
		"hint":  bodyHint("10.0.0.1:8000,10.0.0.2:8000,10.0.0.3:8000", ""),
		"chunk": chunk(bytes.Repeat([]byte("x"), 62000), false, true),
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, r := range written() {
		b.Run(name+"/hand", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := encodeResponse(r); !ok {
					b.Fatal("not by hand")
				}
			}
		})
		b.Run(name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := proto.Marshal(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
