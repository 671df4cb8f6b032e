package load

import (
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
)

// loading is a rig whose requests load tokens, at the learned times.
type loading struct {
	*rig
	block uint64
}

// send sends an idle replica a request that loads tokens, and ends it when they have taken
// each seconds.
func (l *loading) send(to index.Holder, tokens int64, each float64) {
	a := l.Of(to)
	l.block++
	l.wait(time.Second)
	t := Terms{
		Model: 5e6, Expected: 5e6, Sentinel: l.block,
		BelowTerms: BelowTerms{Loaded: tokens, LoadedFrom: policy.Shared, Unhindered: true, Loading: int64(a.LoadTime(policy.Shared) * float64(tokens) * 1e9)},
	}
	c := l.put(to, t)
	l.wait(time.Duration(5e6 + stepTime*1e9 + each*float64(tokens)*1e9))
	l.stored(to, l.block)
	c.Release()
}

// TestLoadsAreLearnedFromFirstTokens: from the prior to the time that is seen within ten long
// prompts, and again when it changes; other replicas begin with what two have shown.
func TestLoadsAreLearnedFromFirstTokens(t *testing.T) {
	l := &loading{rig: newRig(t)}
	a := l.Of(one)
	if got := a.LoadTime(policy.Shared); got != tierPrior[policy.Shared] {
		t.Fatalf("before the first load: %g s for a token", got)
	}
	for _, each := range []float64{65e-6, 20e-6} {
		for range 40 {
			l.send(one, 20_000, each)
			l.send(two, 20_000, each)
		}
		for _, h := range []*Account{a, l.Of(two), l.Of(index.Holder{Replica: "third"})} {
			if got := h.LoadTime(policy.Shared); got < each/1.2 || got > each*1.2 {
				t.Errorf("a token takes %g s to load, learned %g s", each, got)
			}
		}
	}
	if own, prior := a.LoadTime(policy.CPU), tierPrior[policy.CPU]; own != prior {
		t.Errorf("loads from a store change the time of CPU memory: %g s, not %g s", own, prior)
	}
	if speed := a.Speed(); speed != 0 {
		t.Errorf("loads count as the speed of prefill: %g", speed)
	}
}

// TestNoReplicaPricesTheOthers: whatever one replica shows, and however often, it sets its own
// times alone; those of the fleet follow the median.
func TestNoReplicaPricesTheOthers(t *testing.T) {
	for name, seconds := range map[string]float64{"slow beyond sense": 1e9, "faster than light": 1e-12} {
		r := newRig(t)
		liar, honest, idle := r.Of(one), r.Of(two), r.Of(index.Holder{Replica: "third"})
		for range 30 {
			honest.learnLoad(policy.CPU, 0.5, 1e5)
			liar.learnLoad(policy.CPU, seconds, 1e5)
		}
		for _, a := range []*Account{honest, idle} {
			if got := a.LoadTime(policy.CPU); got < 4e-6 || got > 6e-6 {
				t.Errorf("%s: a token takes another replica %g s", name, got)
			}
		}
		if got := liar.LoadTime(policy.CPU); got > 4e-6 && got < 6e-6 {
			t.Errorf("%s: the replica's own time stays %g s", name, got)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, v := range [][]float64{{1}, {4, 1}, {3, 1, 2}, {1e-4, 1, 1, 1e4}, {2, 2, 2}, {5, 4, 3, 2, 1, 0, 9}} {
		sorted := slices.Sorted(slices.Values(v))
		if got := Median(slices.Clone(v)); got != sorted[(len(v)-1)/2] {
			t.Errorf("%v: %g", v, got)
		}
	}
}

// TestLoadsQueue: the loads of requests in flight follow each other.
func TestLoadsQueue(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.put(one, Terms{BelowTerms: BelowTerms{Loading: 2e9}})
	}
	r.wait(time.Second)
	if got := r.state(one).Loading; !near(got, 5) {
		t.Errorf("loads are done in %g s, want 5", got)
	}
	r.wait(time.Minute)
	if got := r.state(one).Loading; got != 0 {
		t.Errorf("loads are done in %g s, want 0", got)
	}
}

// TestCreditFollowsTheCounters: of tokens that no event takes back, those count that the replica
// finds, and all of them when it finds them again; tokens of others, restarts and pages without counters
// teach nothing wrong.
func TestCreditFollowsTheCounters(t *testing.T) {
	for name, tt := range map[string]struct {
		asked, found float64 // by the replica, of each request of this router
		others       float64 // requests that others send for each of ours
		want         [2]float64
	}{
		"all found":             {10_000, 8000, 0, [2]float64{1, 1}},
		"more found":            {10_000, 9900, 0, [2]float64{1, 1}},
		"half found":            {10_000, 4000, 0, [2]float64{0.5, 0.6}},
		"nothing found":         {10_000, 0, 0, [2]float64{0, 0}},
		"half found, others":    {10_000, 4000, 3, [2]float64{0.5, 0.6}},
		"the connector's is no": {0, 0, 0, [2]float64{1, 1}},
	} {
		r := newRig(t)
		a := r.Of(one)
		var page fleet.Load
		scrape := func() {
			r.wait(time.Second)
			page.At = r.now
			r.Lock()
			a.Scrape(page, true)
			r.Unlock()
		}
		scrape()
		send := func(credited int64, answered bool) {
			c := r.put(one, Terms{BelowTerms: BelowTerms{Credited: credited, Behind: 10_000}})
			page.AskedTokens += tt.asked * (1 + tt.others)
			page.LoadedTokens += tt.found * (1 + tt.others)
			c.Release()
			c.Settle(answered)
			scrape()
		}
		for range 40 {
			send(8000, true)
		}
		if got := a.Found(); got < tt.want[0] || got > tt.want[1] {
			t.Errorf("%s: %g counts, want %g to %g", name, got, tt.want[0], tt.want[1])
		}
		was := a.Found()
		page = fleet.Load{} // restarted
		scrape()
		send(0, true)
		send(8000, false)
		page.MoveSeconds = 1 // blocks have come from another replica
		page.LoadedTokens += 1e6 - 2*tt.found
		send(8000, true)
		if got := a.Found(); got != was {
			t.Errorf("%s: %g counts after what teaches nothing, want %g", name, got, was)
		}
		page, tt.found = fleet.Load{}, tt.asked
		scrape()
		for range 60 {
			send(10_000, true)
		}
		if got := a.Found(); got < 0.9 {
			t.Errorf("%s: %g counts when all are found again", name, got)
		}
	}
}
