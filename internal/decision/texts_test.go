package decision

import (
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// silent are n replicas without KV events.
func silent(n int) []*fleet.Replica {
	all := replicas(n)
	for i := range all {
		all[i].Events = nil
	}
	return all
}

// text asks for a text of n windows that shares nothing with texts of other families.
func (r *rig) text(family, n int, dry bool) Decision {
	keys := r.textKeys(family, n)
	return r.decider.Decide(&Ask{Model: "m", Text: keys, TextTokens: len(keys) * prefixhash.TextUnit, Dry: dry}, new(Work))
}

func (r *rig) textKeys(family, n int) []prefixhash.Key { return prompt(family, 0, n).keys() }

// end answers and releases a decision's request.
func end(d Decision) {
	d.Reservation.Answered(200)
	d.Reservation.Release()
}

// TestColdTextsGoWhereLeastTextWasSent: filter-then-score weighs replicas by the
// texts that are known to be there, also texts that other routers sent.
func TestColdTextsGoWhereLeastTextWasSent(t *testing.T) {
	kind := policy.NameBalance
	for _, full := range []int{1, 2, 3} {
		r := newRig(t, policy.Config{Overrides: policy.Overrides{RoutePolicy: &kind}}, silent(3)...)
		for i := 1; i <= 3; i++ {
			windows := 4
			if i == full {
				windows = 2
			}
			r.decider.Receive(Prefix{Statement: Observed, Model: "m", Holder: index.Holder{Replica: replica(i).Addr}, Keys: r.textKeys(i, windows)})
		}
		for family := 10; family < 16; family++ { // several, as equals are spread
			if d := r.text(family, 1, true); first(d) != replica(full).Addr {
				t.Errorf("a cold text goes to %s, want %s with the least text", first(d), replica(full).Addr)
			}
		}
	}
}

// TestHistoryEvictsByTheReportedSize: the cache's size is the replica's own, a running
// request's text stays, and another router is told of both.
func TestHistoryEvictsByTheReportedSize(t *testing.T) {
	all := silent(1)
	all[0].Blocks = 2000 / blockSize
	one, other, told := newRig(t, policy.Config{}, all...), newRig(t, policy.Config{}, all...), new(colleagues)
	one.decider.o.Peers = told
	has := func(r *rig) bool { return r.text(1, 8, true).Reason == ReasonLearned }
	others := func(families ...int) {
		for _, family := range families {
			end(one.text(family, 12, false))
		}
		for _, p := range told.told {
			other.decider.Receive(p)
		}
		told.told = nil
	}
	running := one.text(1, 8, false)
	others(2, 3, 4)
	if !has(one) || !has(other) {
		t.Errorf("a running request's text is gone: of this router %v, of the other one %v", !has(one), !has(other))
	}
	end(running)
	others(5)
	if !has(one) || !has(other) {
		t.Errorf("the last but one text is gone: %v, %v", !has(one), !has(other))
	}
	others(6, 7, 8)
	if has(one) || has(other) {
		t.Errorf("the text stays beyond the cache's size: %v, %v", has(one), has(other))
	}
}

// TestColdPromptsAreWeighedAlike: replicas that report their blocks, and those of which the router only
// knows what it was sent, get as much.
func TestColdPromptsAreWeighedAlike(t *testing.T) {
	kind := policy.NameBalance
	all := append(silent(1), replica(2))
	r := newRig(t, policy.Config{Overrides: policy.Overrides{RoutePolicy: &kind}}, all...)
	to := map[string]int{}
	for family := range 40 {
		d, _ := r.ask(prompt(family+1, 0, 1000))
		to[first(d)]++
		end(d)
		r.wait(time.Second)
	}
	for _, rep := range all {
		if n := to[rep.Addr]; n < 18 || n > 22 {
			t.Errorf("%d of 40 prompts of 1,000 blocks went to %s", n, rep.Addr)
		}
	}
}
