package tokenizer

import (
	"math/rand/v2"
	"testing"
)

func benchChat(b *testing.B, name string, seed uint64) []byte {
	return []byte(conversation(rand.New(rand.NewPCG(seed, 1)), 100_000, chats[name][0], chats[name][1]))
}

// BenchmarkWarm encodes one conversation of 100 KB again and again.
func BenchmarkWarm(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) {
			tok := model(b, name)
			text := benchChat(b, name, 1)
			var ids []uint32
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				ids = tok.Append(nil, ids[:0], text, false)
			}
		})
	}
}

// BenchmarkCold encodes with no word cache at all: every word that is not one
// token is merged each time.
func BenchmarkCold(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) {
			tok, err := Load(modelDir(b, name), Options{WordCache: -1})
			if err != nil {
				b.Fatal(err)
			}
			text := benchChat(b, name, 1)
			var ids []uint32
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				ids = tok.Append(nil, ids[:0], text, false)
			}
		})
	}
}

// BenchmarkNextTurn encodes a conversation that grew by one turn.
func BenchmarkNextTurn(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) {
			tok := model(b, name)
			s, err := NewStore(tok, 64<<20)
			if err != nil {
				b.Fatal(err)
			}
			text := benchChat(b, name, 1)
			ids := s.Append(nil, nil, text, false)
			next := []byte(conversation(rand.New(rand.NewPCG(9, 9)), 500, chats[name][0], chats[name][1]))
			n := 0
			for b.Loop() {
				n++
				next[30] = 'a' + byte(n%26) // a turn never seen before
				next[31] = 'a' + byte(n/26%26)
				next[32] = 'a' + byte(n/676%26)
				ids = s.Append(nil, ids[:0], append(text, next...), false)
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) {
			dir := modelDir(b, name)
			for b.Loop() {
				if _, err := Load(dir, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
