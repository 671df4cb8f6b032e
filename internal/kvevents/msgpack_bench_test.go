package kvevents

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// BenchmarkMsgpack decodes the same payloads three ways: as this package does, by
// the library into Go values, and by the library's decoder value by value, which
// is the least that code on top of the library costs.
func BenchmarkMsgpack(b *testing.B) {
	for name, enc := range generations() {
		payloads, blocks := workload(enc, 256)
		run := func(how string, decode func(payload []byte) error) {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for _, p := range payloads {
						if err := decode(p); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks), "ns/block")
			})
		}
		var d Decoder
		run("cursor", func(p []byte) error { _, err := d.Decode(p); return err })
		run("values", func(p []byte) error { var v any; return msgpack.Unmarshal(p, &v) })
		r := bytes.NewReader(nil)
		lib := msgpack.NewDecoder(r)
		run("library", func(p []byte) error { r.Reset(p); lib.Reset(r); return walkMsgpack(lib) })
	}
}

// walkMsgpack reads one value and the values in it.
func walkMsgpack(d *msgpack.Decoder) error {
	c, err := d.PeekCode()
	if err != nil {
		return err
	}
	n := 0
	switch {
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		n, err = d.DecodeArrayLen()
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		n, err = d.DecodeMapLen()
		n *= 2
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		_, err = d.DecodeUint64()
	default:
		err = d.Skip()
	}
	for ; err == nil && n > 0; n-- {
		err = walkMsgpack(d)
	}
	return err
}
