package prefixhash

import "testing"

// Every benchmark hashes a prompt of 8,192 tokens in blocks of 16 and reports
// the time per block.
func perBlock(b *testing.B, blocks int, f func()) {
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(blocks), "ns/block")
}

func BenchmarkTokenChain(b *testing.B) {
	tokens := someTokens(8192)
	salt := "tenant"
	for _, c := range []struct {
		name string
		r    Request
	}{
		{"plain", Request{}},
		{"salt", Request{CacheSalt: &salt}},
		{"lora", Request{LoRA: LoRA{Name: "sql-lora", Set: true}}},
		{"image", Request{MM: []MM{{"321564c434b89456ec4120028c8b222df73da43a5e384ff96faab8a9695099f9", 100, 2000}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			keys := make([]Key, 0, 512)
			var extras [][]ExtraKey
			perBlock(b, 512, func() {
				extras = c.r.AppendExtras(extras[:0], 512, 16)
				keys = AppendTokens(keys[:0], 1, tokens, 16, extras)
			})
		})
	}
	b.Run("contents", func(b *testing.B) {
		contents := make([]Content, 0, 512)
		perBlock(b, 512, func() { contents = AppendContents(contents[:0], tokens, 16, nil) })
	})
	b.Run("links", func(b *testing.B) {
		contents, keys := AppendContents(nil, tokens, 16, nil), make([]Key, 0, 512)
		perBlock(b, 512, func() { keys = AppendLinks(keys[:0], 1, contents) })
	})
}

func BenchmarkVLLM(b *testing.B) {
	tokens := someTokens(8192)
	seed, salt := "42", "tenant"
	for a := SHA256; a <= XXHashCBOR; a++ {
		v, _ := NewVLLM(VLLMOptions{Algorithm: a, Generation: Tagged, Seed: &seed})
		root, _ := v.Root()
		for _, c := range []struct {
			name string
			r    Request
		}{{"plain", Request{}}, {"lora", Request{LoRA: LoRA{Name: "sql-lora", Set: true}, LoRAPath: "/adapters/sql-lora", CacheSalt: &salt}}} {
			b.Run(a.String()+"/"+c.name, func(b *testing.B) {
				digests := make([]Digest, 0, 512)
				perBlock(b, 512, func() { digests = v.AppendDigests(digests[:0], Position{Parent: root}, tokens, 16, c.r) })
			})
		}
	}
}

// BenchmarkText hashes a prompt of 1 MB.
func BenchmarkText(b *testing.B) {
	text := make([]byte, 1<<20)
	keys := AppendText(nil, "model", text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		keys = AppendText(keys[:0], "model", text)
	}
}
