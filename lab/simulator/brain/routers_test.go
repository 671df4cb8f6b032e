package brain

import (
	"slices"
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
)

// TestABurstOfOnePromptSpreads: three routers that receive one prompt 512 times within half a
// second, each a third of them, spread it evenly over eight replicas: what they tell each other,
// 5 ms late, does not make them all choose the same one.
func TestABurstOfOnePromptSpreads(t *testing.T) {
	const requests, replicas, input = 512, 8, 8192
	rs, err := NewRouters(3, 0.005, Options{Replicas: replicas, Block: 16, Seed: 1, Policy: policy.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Close()
	blocks := make([]int32, input/16)
	for i := range blocks {
		blocks[i] = int32(i)
	}
	at := make([]int, replicas)
	for i := range requests {
		q := &simulator.Request{ID: i, At: float64(i) * 0.001, Input: input, Output: 100, Blocks: blocks, Prefill: -1}
		q.Replica = rs.Route(q.At, q)
		rs.Routed(q.At, q)
		at[q.Replica]++
	}
	if most := float64(slices.Max(at)) * replicas / requests; most > 1.3 {
		t.Errorf("in flight %v: most over mean %.2f", at, most)
	}
}
