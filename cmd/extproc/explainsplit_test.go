package main

import (
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/render/testkit/must"
)

// TestPrintSplit: an explanation has both prices with their terms, and nothing about
// requests that can never be split.
func TestPrintSplit(t *testing.T) {
	hit := 64
	s := decision.SplitRecord{
		Reason: decision.SplitDone, Decode: "10.0.0.2:8000", Prefill: "10.0.0.1:8000", Held: 800, Predicted: 64, Moves: 9200, Hit: &hit,
		Times: decision.SplitTimes{Answered: 0.4, Computed: 0.39, Moved: 0.15},
		Local: policy.Price{Queue: 2, Prefill: 0.3, Decoding: 0.1, Later: 0.9, Total: 3.3}, Remote: policy.Price{Prefill: 0.35, Handover: 0.17, Decoding: 0.12, Later: 1.05, Harm: 0.01, Total: 1.7},
	}
	var out strings.Builder
	must.Do(t, printSplit(&out, &decision.Record{Subject: decision.Subject{Took: 2 * time.Millisecond}, Split: s, Answered: &decision.Answered{FirstByte: 0.602}}))
	want := `
prefill and decode: split
     prefill on  cached    queue  prefill  handover  decoding  for later ones  for answers    cost
  10.0.0.2:8000     800  2.000 s  0.300 s   0.000 s   0.100 s           0.900        0.000  3.3000
  10.0.0.1:8000      64  0.000 s  0.350 s   0.170 s   0.120 s           1.050        0.010  1.7000
10.0.0.1:8000 computes the prompt, 9200 tokens of its KV cache are moved to 10.0.0.2:8000, which answers
decision 2ms, prefill computed after 0.390 s, answered after 0.400 s, KV cache moved in 0.150 s, first byte of the answer 0.200 s after the prefill's answer
10.0.0.1:8000 counted 64 cached tokens, 64 were predicted
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := printSplit(&out, &decision.Record{}); err != nil || out.Len() > 0 {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}
