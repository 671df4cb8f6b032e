//go:build vtprotobuf

package extprocwire

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// BenchmarkEncodeVT is BenchmarkEncode with the code that go-control-plane
// generates under the build tag vtprotobuf.
func BenchmarkEncodeVT(b *testing.B) {
	for name, r := range written() {
		var back response // the order of fields is another
		if got, err := r.MarshalVTStrict(); err != nil || proto.Unmarshal(got, &back) != nil || !proto.Equal(&back, r) {
			b.Fatalf("%s: comes back as %v, %v", name, &back, err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.MarshalVTStrict(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
