package decision

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sglang"
)

// TestBoundsClaimNothing: a replica whose matches are upper bounds keeps them, in the record and
// in the price, whatever its answers have found, and is never held to them. When they are exact,
// it is.
func TestBoundsClaimNothing(t *testing.T) {
	rep := replicas(1)[0]
	rep.SGLang = new(sglang.Server)
	r := &answering{rig: newRig(t, policy.Config{}, rep), p: prompt(1, 0, 300)}
	const all = 300 * blockSize
	settings := index.GroupSettings{Rule: index.GroupRuleSGLang, EagleKnown: true, Block: blockSize}
	for name, claimed := range map[string]int{"its windows are not announced": 0, "": all} {
		of := settings
		of.Limit = name
		r.index.SetGroups(one, &of)
		r.stored(one, r.p)
		for range 20 {
			s := r.send(Ask{})
			if c := r.w.cands[0]; s.Reported != claimed || s.Telling || r.w.Record.Predicted != all || c.Match.Matched() != all || c.Match.Cached() != all {
				t.Fatalf("limit %q: %d tokens claimed, telling %v: %+v", name, s.Reported, s.Telling, c)
			}
			r.end(s, 0)
		}
	}
}
