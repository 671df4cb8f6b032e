package vllmsim

import (
	"sort"
	"time"
)

// histogram counts observations per bucket, as Prometheus does.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds: the last is +Inf
	sum    float64
	n      uint64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)]++
	h.sum += v
	h.n++
}

// vLLM's bucket bounds (vllm/v1/metrics/loggers.py).
var (
	ttftBounds      = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBounds       = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	latencyBounds   = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	transferBounds  = []float64{.005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5}
	bytesBounds     = []float64{1 << 11, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 25, 1 << 27, 1 << 29, 1 << 31, 1 << 33}
	iterationBounds = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// tokenBounds returns 1, 2, 5, 10, … up to maxModelLen.
func tokenBounds(maxModelLen int) (bounds []float64) {
	for unit := 1; ; unit *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*unit > maxModelLen {
				return bounds
			}
			bounds = append(bounds, float64(m*unit))
		}
	}
}

// stats are one rank's counters since it started. The engine's lock guards them.
type stats struct {
	external                          struct{ queries, hits int } // of the connector, in tokens
	nixl                              nixlStats
	queries, hits                     int // tokens that the engine looked up in the prefix cache, and found
	promptTokens, promptHits, outputs int
	transferred                       int // of promptHits
	preemptions                       int
	finished                          map[string]int // by finished_reason

	ttft, itl, e2e, queue, inference, prefill, decode *histogram
	iteration, prompts, answers                       *histogram
}

func newStats(maxModelLen int) stats {
	return stats{
		finished: map[string]int{},
		nixl:     nixlStats{seconds: newHistogram(transferBounds), bytes: newHistogram(bytesBounds)},
		ttft:     newHistogram(ttftBounds), itl: newHistogram(itlBounds),
		e2e: newHistogram(latencyBounds), queue: newHistogram(latencyBounds), inference: newHistogram(latencyBounds),
		prefill: newHistogram(latencyBounds), decode: newHistogram(latencyBounds),
		iteration: newHistogram(iterationBounds), prompts: newHistogram(tokenBounds(maxModelLen)), answers: newHistogram(tokenBounds(maxModelLen)),
	}
}

// nixlStats are the counters of Nixl.
type nixlStats struct {
	seconds, bytes               *histogram // of pulls
	failed, expired, afterExpiry int
}

// token books one generated token of s.
func (t *stats) token(s *sequence, now time.Time, first, last bool) {
	t.outputs++
	if first {
		s.firstToken = now
		t.promptTokens += s.prompt
		t.promptHits += s.hit + s.transferred
		t.transferred += s.transferred
		t.ttft.observe(now.Sub(s.arrived).Seconds())
	} else {
		t.itl.observe(now.Sub(s.lastToken).Seconds())
	}
	s.lastToken = now
	if !last {
		return
	}
	t.finished["length"]++
	t.e2e.observe(now.Sub(s.arrived).Seconds())
	t.inference.observe(now.Sub(s.started).Seconds())
	t.prefill.observe(s.firstToken.Sub(s.started).Seconds())
	t.decode.observe(now.Sub(s.firstToken).Seconds())
	t.prompts.observe(float64(s.prompt))
	t.answers.observe(float64(len(s.tokens) - s.prompt))
}
