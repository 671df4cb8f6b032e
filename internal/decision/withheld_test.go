package decision

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
)

// TestWithheldDecisions: a decision whose hint is withheld has the replica, the reason
// and the prediction of one that is not. It puts no load on a replica, expects no blocks
// in a cache and tells nothing to other routers.
func TestWithheldDecisions(t *testing.T) {
	r := newRig(t, policy.Config{}, replica(1), replica(2))
	r.stored(replica(2).Addr, prompt(1, 0, 10))
	peers := new(colleagues)
	r.decider.o.Peers = peers
	for family, want := range map[int]Reason{1: ReasonWarm, 2: ReasonCold} {
		ask := func(withheld bool) (Decision, Record) {
			w := new(Work)
			d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(family, 0, 20), Withheld: withheld}, w)
			return d, w.Record
		}
		for range 20 { // the first would make the second warm, and move later ones by its load
			if d, rec := ask(true); d.Reason != want || d.Chosen == "" || d.Reservation != nil || rec.Predicted != matched(want) || len(rec.Candidates) != 2 {
				t.Fatalf("withheld: %+v, %+v; want %s", d, rec, want)
			}
		}
		for _, n := range []int{1, 2} {
			if got := r.ledger.Of(index.Holder{Replica: replica(n).Addr}).InFlight(); got != 0 {
				t.Errorf("%d requests are in flight on replica %d", got, n)
			}
		}
		if len(peers.told) != 0 {
			t.Errorf("other routers were told %+v", peers.told)
		}
		d, rec := ask(false)
		if d.Reason != want || rec.Predicted != matched(want) || d.Reservation == nil || len(peers.told) == 0 {
			t.Errorf("not withheld: %+v, sent %v; want %s", d, peers.told, want)
		}
		end(d)
		peers.told = nil
	}
}

func matched(of Reason) int {
	if of == ReasonWarm {
		return 10 * blockSize
	}
	return 0
}

// TestWithheldDecisionsSpreadTies: each takes a number of its own, as others do.
func TestWithheldDecisionsSpreadTies(t *testing.T) {
	r := newRig(t, policy.Config{}, replica(1), replica(2))
	to := map[string]int{}
	for i := range 40 {
		d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(i, 0, 3), Withheld: true}, new(Work))
		to[first(d)]++
	}
	if len(to) != 2 {
		t.Errorf("equal replicas were chosen so often: %v", to)
	}
}

// TestWithheldTexts: a text whose hint is withheld is learned where it was served, once
// that is known, and nowhere before.
func TestWithheldTexts(t *testing.T) {
	r := newRig(t, policy.Config{}, silent(3)...)
	keys := r.textKeys(1, 8)
	d := r.decider.Decide(&Ask{Model: "m", Text: keys, TextTokens: len(keys) * prefixhash.TextUnit, Withheld: true}, new(Work))
	if d.Reason != ReasonLearnedCold || d.Reservation == nil {
		t.Fatalf("%+v", d)
	}
	if again := r.text(1, 8, true); again.Reason != ReasonLearnedCold {
		t.Errorf("before it is served: %s", again.Reason)
	}
	served := replica(1).Addr
	if served == first(d) {
		served = replica(2).Addr
	}
	r.decider.Served(&d, "10.9.9.9:1") // no replica
	r.decider.Served(&d, served)
	end(d)
	end(d) // further calls do nothing
	if again := r.text(1, 8, true); again.Reason != ReasonLearned || first(again) != served {
		t.Errorf("served by %s: %s to %s", served, again.Reason, first(again))
	}
	if n := r.ledger.Of(index.Holder{Replica: served}).InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// TestWithhold: the record keeps the hint that the decision loses.
func TestWithhold(t *testing.T) {
	d := Decision{Reason: ReasonWarm, Choice: Choice{Chosen: "10.0.0.1:8000"}, Rank: "1"}
	rec := Record{Choice: d.Choice}
	d.Withhold(&rec, WithheldNot)
	if d.Chosen == "" || d.Withheld != "" || d.ForClients() != ForClientsRouted {
		t.Errorf("not withheld: %+v", d)
	}
	d.Withhold(&rec, WithheldShare)
	if d.Chosen != "" || d.Rank != "" || d.Withheld != WithheldShare || rec.Withheld != WithheldShare || rec.Chosen == "" || d.ForClients() != ForClientsNotRouted {
		t.Errorf("withheld: %+v %+v", d, rec)
	}
	none := Decision{Reason: ReasonNotReady}
	if none.Withhold(&rec, WithheldShadow); none.Withheld != "" {
		t.Errorf("a decision without a replica: %+v", none)
	}
}
