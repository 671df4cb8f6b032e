package decision

import (
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/decision/policy"
)

// TestRequestsInFlightMakeTiersInexact: what a replica with CPU memory has of a prompt is exact
// while nothing else is in flight there. A request in flight makes it inexact for a prompt that
// hits something, and for one that begins alike.
func TestRequestsInFlightMakeTiersInexact(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	r.index.SetGroups(one, &index.GroupSettings{EagleKnown: true})
	held := prompt(1, 0, 8)
	e := r.event(held)
	e.Spec = "full_attention"
	r.apply(e)
	e.Tier, e.ByHash, e.Connector, e.Content, e.Scope.BlockSize = index.TierCPU, true, index.OffloadChunks, nil, 0
	e.Hashes = e.Hashes[:1]
	r.apply(e)
	want := func(p chained, why string) {
		t.Helper()
		rec := r.explainOf(&Ask{Prompts: p})
		trust := rec.Candidates[0].Cache.Trust
		if trust.Exact != (why == "") || !strings.Contains(trust.Why, why) {
			t.Errorf("%+v, want %q", trust, why)
		}
	}
	fresh, next := prompt(2, 0, 8), prompt(3, 0, 8)
	want(held, "")
	want(next, "")
	r.ask(fresh)
	want(held, "may evict blocks")
	want(fresh, "with the same beginning")
	want(next, "")
}
