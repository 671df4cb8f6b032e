package decision

import (
	"testing"
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// TestTheGuardCountsLegs: a replica that computes many prompts for others is guarded as
// one with as many answers, also for a prompt that it holds.
func TestTheGuardCountsLegs(t *testing.T) {
	r := newRig(t, policy.Config{}, apartFleet(fleet.RoleBoth, fleet.RoleDecode, fleet.RoleDecode)...)
	p := prompt(1, 0, 500)
	r.stored("10.0.0.1:8000", p)
	if d, _ := r.ask(p); first(d) != "10.0.0.1:8000" {
		t.Fatalf("named: %s", d.Chosen)
	}
	r.ledger.Lock()
	for range 100 {
		new(load.Charge).Put(r.account("10.0.0.1:8000"), load.Terms{Due: r.decider.now().Add(time.Hour).UnixNano(), SplitTerms: load.SplitTerms{Leg: true}})
	}
	r.ledger.Unlock()
	d, rec := r.maySplit(p)
	if c := rec.Candidates[0]; c.Replica != "10.0.0.1:8000" || c.Score.Verdict != policy.LoadGuarded || first(d) == c.Replica {
		t.Errorf("%s with %d in flight: %v, named %s", c.Replica, c.State.InFlight, c.Score.Verdict, first(d))
	}
}

// TestALimitOfTheWaitCountsBothLegs: a request is beyond the limit if neither a replica that
// answers nor one that computes its prompt for it is in time; with a priority it is routed all
// the same.
func TestALimitOfTheWaitCountsBothLegs(t *testing.T) {
	limit := 1.0
	r := newRig(t, policy.Config{Overrides: policy.Overrides{MaxTTFT: &limit}}, apartFleet(fleet.RolePrefill, fleet.RoleDecode)...)
	r.chargeOn(r.account(decodeLeg), 3*time.Second)
	if d, rec := r.maySplit(prompt(1, 0, 100)); d.Split == nil {
		t.Errorf("another replica is in time: %s, %+v", d.Reason, rec.Split)
	}
	r.chargeOn(r.account(prefillLeg), 3*time.Second)
	if d, _ := r.maySplit(prompt(2, 0, 100)); d.Reason != ReasonSaturated || d.Chosen != "" {
		t.Errorf("nobody is in time: %s, named %s", d.Reason, d.Chosen)
	}
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(3, 0, 100), MaySplit: true, Priority: 1}, w)
	if first(d) != decodeLeg {
		t.Errorf("with priority: %s, named %s", d.Reason, d.Chosen)
	}
}
