package fleet

import (
	"slices"
)

// FirstTokenBounds are the upper bounds of FirstTokens in seconds, as vLLM has them.
var FirstTokenBounds = [...]float64{
	0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
}

// FirstTokens are numbers of first tokens by their time: those up to the bound of the same
// index and above the one before it, and at last those above all bounds. Buckets with
// other bounds, which a vLLM server can be configured to have, count up to the next bound.
type FirstTokens [len(FirstTokenBounds) + 1]float64

// Spent is a time that finished requests have spent, in sum.
type Spent struct {
	Seconds  float64 `json:"seconds"`
	Requests float64 `json:"requests"`
}

// Answers are the answers that a rank has ended since its start, and their tokens in sum.
type Answers struct{ Count, Tokens float64 }

// Times are what requests spent.
type Times struct {
	TTFT    Spent // until the first token
	Queue   Spent // before they were scheduled
	Prefill Spent // from there to the first token
	Decode  Spent // from there to the last token
}

// bucket is the last bucket that was read of a histogram.
type bucket struct {
	bound float64 // infinite for the last one
	upTo  float64 // observations up to the bound
	rank  int
}

// firstTokens adds a bucket of the first tokens of a rank. A page has a histogram's buckets
// in the order of their bounds, so a bound that is not above the last one begins another.
func (p *page) firstTokens(one sample) {
	bound, ok := number(one.label("le"))
	upTo := one.value
	if !ok || !(bound > 0) || upTo < 0 {
		return
	}
	before := p.bucket
	if before.rank != one.rank || bound <= before.bound {
		before = bucket{}
	}
	p.bucket = bucket{bound: bound, upTo: max(upTo, before.upTo), rank: one.rank}
	if e := p.engine(one.rank); e != nil && upTo > before.upTo {
		i, _ := slices.BinarySearch(FirstTokenBounds[:], bound)
		e.FirstTokens[i] += upTo - before.upTo
	}
}
