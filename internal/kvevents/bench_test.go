package kvevents

import (
	"math/rand/v2"
	"testing"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
)

// nullSink takes everything.
type nullSink struct{}

func (nullSink) Begin(index.Holder) uint64                { return 1 }
func (nullSink) Apply(*index.Batch) (index.Result, error) { return index.Result{}, nil }

// workload is batches as a busy replica publishes them: 16-token blocks in
// events of 16, each preceded by as many single removals.
func workload(enc kvtest.Encoding, batches int) (payloads [][]byte, blocks int) {
	const perEvent, size = 16, 16
	rng := rand.New(rand.NewPCG(1, 2))
	var evict []uint64
	for range batches {
		var events []kvtest.Event
		for _, h := range evict {
			events = append(events, kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{h}})
		}
		evict = nil
		e := kvtest.Event{Kind: kvtest.Stored, BlockSize: size}
		for range perEvent {
			e.Hashes = append(e.Hashes, rng.Uint64())
			for range size {
				e.Tokens = append(e.Tokens, rng.Uint32N(151_936)) // Qwen3's vocabulary
			}
		}
		evict = append(evict, e.Hashes...)
		payloads = append(payloads, enc.Batch(1, 0, append(events, e)...))
		blocks += perEvent
	}
	return payloads, blocks
}

func BenchmarkIngest(b *testing.B) {
	for name, enc := range generations() {
		payloads, blocks := workload(enc, 256)
		b.Run(name, func(b *testing.B) {
			s, err := New(Options{Replica: "r", Model: "m", Endpoint: "tcp://127.0.0.1:1"}, nullSink{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				for i, p := range payloads {
					if err := s.apply(frame{seq: uint64(i), payload: p}); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)*float64(blocks)/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}

// BenchmarkIngestIndex is the whole way: payload to searchable index, half the
// blocks newly stored and half removed.
func BenchmarkIngestIndex(b *testing.B) {
	for name, enc := range generations() {
		payloads, blocks := workload(enc, 256)
		b.Run(name, func(b *testing.B) {
			s, err := New(Options{Replica: "r", Model: "m", Endpoint: "tcp://127.0.0.1:1"}, realIndex(b))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.begin()
				for i, p := range payloads {
					if err := s.apply(frame{seq: uint64(i), payload: p}); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)*float64(blocks)/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}
