package decision

import "testing"

// TestClientsSeeCoarseReasons: decisions that differ only by the blocks or the load of
// replicas have one code for clients.
func TestClientsSeeCoarseReasons(t *testing.T) {
	for _, r := range Reasons() {
		want := string(r)
		switch r {
		case ReasonWarm, ReasonCold, ReasonMoved, ReasonGuarded, ReasonAlways, ReasonLearned, ReasonLearnedCold:
			want = "routed"
		case ReasonNoMatch, ReasonAllGuarded:
			want = "not_routed"
		}
		if got := r.ForClients(); got != want {
			t.Errorf("clients see %q for %q, want %q", got, r, want)
		}
	}
}
