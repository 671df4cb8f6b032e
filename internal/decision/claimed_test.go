package decision

import (
	"testing"

	"warmroute/internal/decision/policy"
)

// TestClaimedTokens: a replica is taken to find the full blocks before a prompt's last token, which it
// computes in any case.
func TestClaimedTokens(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	whole := prompt(1, 0, 10)
	whole.extra = 0
	r.stored("10.0.0.1:8000", whole)
	for name, c := range map[string]struct {
		p    chained
		want int
	}{
		"it ends with a block":      {whole, 9 * blockSize},
		"one token behind":          {prompt(1, 0, 10), 10 * blockSize},
		"it goes on":                {grown(whole, 1), 10 * blockSize},
		"of which nothing is known": {prompt(2, 0, 10), 0},
	} {
		d, _ := r.ask(c.p)
		if d.Reported != c.want {
			t.Errorf("%s: %d tokens are claimed, want %d", name, d.Reported, c.want)
		}
		d.Reservation.Release()
	}
}

// TestPlacedBlocks: what a request will store where it goes are the blocks that it lacks there.
func TestPlacedBlocks(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	r.stored("10.0.0.1:8000", prompt(1, 0, 50))
	d, _ := r.ask(prompt(1, 0, 100))
	if n := r.account("10.0.0.1:8000").Placed(r.now.UnixNano()); n < 50 || n > 51 {
		t.Errorf("%g blocks are placed, 50 of 100 are cached", n)
	}
	d.Reservation.Release()
}
