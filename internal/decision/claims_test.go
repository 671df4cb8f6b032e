package decision

import (
	"testing"
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
)

// TestADoubtedReplicaCountsAsHoldingNothing: the reports of its events are still
// counted, for comparison with its hits.
func TestADoubtedReplicaCountsAsHoldingNothing(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(3)...)
	const liar = "10.0.0.2:8000"
	p := prompt(1, 0, 100)
	r.stored(liar, p)
	d, rec := r.ask(p)
	if first(d) != liar || d.Reason != ReasonWarm || candidate(t, rec, liar).Match.Matched() != 100*blockSize {
		t.Fatalf("%+v", rec)
	}
	r.wait(time.Minute)
	d.Reservation.Release()
	r.ledger.Doubt(func(replica string) bool { return replica == liar })
	q := prompt(1, 0, 99)
	d, rec = r.ask(q)
	c := candidate(t, rec, liar)
	if d.Reason != ReasonCold || !c.Match.Doubted() || c.Match.Matched()+c.Match.Cached()+c.Match.Below()+int(c.Match[policy.Cut].Tokens) != 0 || rec.Predicted != 0 {
		t.Errorf("%s, %+v", d.Reason, c)
	}
	d.Reservation.Release()
	for range 8 { // until it is sent there for another reason
		if d, _ = r.ask(q); first(d) == liar {
			break
		}
	}
	if first(d) == liar {
		if got := r.ledger.Claims()[liar].Open; got == 0 {
			t.Error("the claims of a doubted replica are not counted")
		}
	}
	r.ledger.Doubt(func(string) bool { return false })
	if d, _ = r.ask(p); first(d) != liar {
		t.Errorf("it is believed again, and %s is preferred", d.Chosen)
	}
}

// TestClaimsOfRequestsThatWereLookedUp: requests that failed, or were cancelled
// while they could still wait, count for nothing.
func TestClaimsOfRequestsThatWereLookedUp(t *testing.T) {
	p := prompt(1, 0, 100)
	claim := int64(100 * blockSize)
	for name, c := range map[string]struct {
		end  func(r *rig, d Decision)
		want load.Claims
	}{
		"in flight":  {func(*rig, Decision) {}, load.Claims{Open: claim}},
		"answered":   {func(_ *rig, d Decision) { d.Reservation.Answered(200) }, load.Claims{Requests: 1, Heads: 1, Tokens: claim}},
		"long ended": {func(r *rig, _ Decision) { r.wait(time.Second) }, load.Claims{Requests: 1, Heads: 1, Tokens: claim}},
		"cancelled":  {func(r *rig, d Decision) {}, load.Claims{}},
		"refused":    {func(_ *rig, d Decision) { d.Reservation.Answered(400) }, load.Claims{}},
		"failed":     {func(_ *rig, d Decision) { d.Reservation.Answered(503) }, load.Claims{}},
		"broken off": {func(_ *rig, d Decision) { d.Reservation.Answered(200); d.Reservation.Ended(false) }, load.Claims{}},
		"elsewhere": {func(r *rig, d Decision) {
			r.decider.Served(&d, "10.0.0.1:8000")
			d.Reservation.Answered(200)
		}, load.Claims{}},
	} {
		r := newRig(t, policy.Config{}, replicas(2)...)
		r.stored("10.0.0.2:8000", p)
		d, _ := r.ask(p)
		c.end(r, d)
		if name != "in flight" {
			d.Reservation.Release()
			d.Reservation.Release()
		}
		if got := r.ledger.Claims()["10.0.0.2:8000"]; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestALiarDrawsWhatItsGuardAllows: with every prompt claimed by one replica of
// eight, it never has more in flight than the load guard's limit.
func TestALiarDrawsWhatItsGuardAllows(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(8)...)
	const liar = "10.0.0.3:8000"
	ttft := policy.DefaultTTFT()
	for n := range 400 {
		p := prompt(n+1, 0, 20)
		r.stored(liar, p)
		r.ask(p)
		mean := float64(n+1) / 8
		if got := float64(r.account(liar).InFlight()); got > ttft.Guard*mean+8+1 {
			t.Fatalf("%.0f of %d requests are in flight at the liar", got, n+1)
		}
	}
	if got := r.account(liar).InFlight(); got < 50 {
		t.Errorf("%d: it draws nothing, and the test shows nothing", got)
	}
}

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
