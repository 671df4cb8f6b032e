package decision

import (
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// apartFleet returns replicas of these roles that can hand KV caches to each other.
func apartFleet(roles ...fleet.Role) (all []*fleet.Replica) {
	for i, role := range roles {
		c := replica(i + 1)
		c.Role, c.Version, c.Transfer = role, "0.32.0", fleet.Transfer{Connector: "NixlConnector"}
		all = append(all, c)
	}
	return all
}

func (r *rig) maySplit(p chained) (Decision, *Record) {
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: p, MaySplit: true}, w)
	return d, &w.Record
}

// busy has every replica that answers compute a long prompt.
func (r *rig) busy(n int) {
	for i := range n {
		if d, _ := r.ask(prompt(100+i, 0, 2000)); d.Reservation == nil {
			r.t.Fatal("no decision")
		}
	}
}

// TestSplitDecision: at rest the replica that answers computes the prompt; when all of them
// are busy, the one that only prefills does, and both count as holding it.
func TestSplitDecision(t *testing.T) {
	r := newRig(t, policy.Config{}, apartFleet(fleet.RolePrefill, fleet.RoleDecode, fleet.RoleDecode)...)
	d, rec := r.maySplit(prompt(1, 0, 500))
	if d.Split != nil || rec.Split.Reason != SplitLocalIdle || rec.Split.Prefill != "10.0.0.1:8000" || rec.Split.Remote.Total <= rec.Split.Local.Total {
		t.Fatalf("at rest: %+v", rec.Split)
	}
	if n := r.decider.Splits().Reasons; len(n) != 1 || n[SplitLocalIdle] != 1 {
		t.Errorf("counted as %v", n)
	}
	r.busy(2)
	p := prompt(2, 0, 512)
	d, rec = r.maySplit(p)
	for _, c := range rec.Candidates[:2] { // the replicas with the role decode
		if c.State.Apart != 0 || c.State.InFlight == 0 {
			t.Errorf("%s: %d requests, %d of them legs", c.Replica, c.State.InFlight, c.State.Apart)
		}
	}
	if d.Split == nil || d.Split.Prefill != "10.0.0.1:8000" || rec.Split.Reason != SplitDone || rec.Split.Moves != p.Tokens(0) || d.Split.Wait <= 2*time.Second {
		t.Fatalf("busy: %+v, %+v", d.Split, rec.Split)
	}
	here := first(d)
	leg, own := r.account(d.Split.Prefill), r.account(here)
	if leg.InFlight() != 1 || leg.Pending() < 0.2 || leg.Sentinels() != 1 || own.Sentinels() == 0 {
		t.Errorf("the prefill is not charged: %d, %g", leg.InFlight(), leg.Pending())
	}
	if _, rec := r.ask(p); candidate(t, rec, here).Match.Matched() != toldOf(512) {
		t.Errorf("the replica that answers is not expected to hold the prompt")
	}
	again, rec := r.maySplit(p)
	again.Reservation.Release()
	if c := candidate(t, rec, d.Split.Prefill); c.Match.Matched() != toldOf(512) || c.Match.Cached() != 0 {
		t.Errorf("the replica that prefills is not expected to hold the prompt: %+v", c)
	}
	scores, winner := rec.Rescore(r.decider.Settings(viewOf(r.decider.Find("m", ""))))
	if rec.Candidates[winner].Replica != rec.Split.Decode || !slices.EqualFunc(scores, rec.Candidates, func(s policy.Score, c CandidateRecord) bool { return s == c.Score }) {
		t.Errorf("the record does not repeat the decision")
	}
	d.Split.Done(p.Tokens(0))
	d.Reservation.Answered(200)
	d.Reservation.Release()
	if leg.InFlight() != 0 || leg.Failures() != 0 {
		t.Errorf("in flight %d, failures %d", leg.InFlight(), leg.Failures())
	}
}

func viewOf(mv *View, _ Reason) *View { return mv }

// TestSplitListsOnlyReplicasThatTakeTheCache: the list of a split request has neither
// replicas of another connector nor the one that computes the prompt.
func TestSplitListsOnlyReplicasThatTakeTheCache(t *testing.T) {
	all := apartFleet(fleet.RoleBoth, fleet.RoleDecode, fleet.RoleDecode, fleet.RoleDecode, fleet.RoleDecode)
	all[3].Transfer.Connector, all[4].Transfer.Connector = "LMCacheConnectorV1", ""
	r := newRig(t, policy.Config{}, all...)
	r.decider.SetRanked(5)
	for i := range 4 {
		c := r.account([]string{"10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000", "10.0.0.5:8000"}[i])
		r.chargeOn(c, 3*time.Second)
	}
	d, rec := r.maySplit(prompt(1, 0, 2000))
	if d.Split == nil { // the first, which is at rest, answers itself
		if first(d) != "10.0.0.1:8000" {
			t.Fatalf("%s: %+v", d.Chosen, rec.Split)
		}
	}
	all[0].Role = fleet.RolePrefill
	r.fleet.Set(all...)
	d, rec = r.maySplit(prompt(2, 0, 2000))
	if d.Split == nil || d.Split.Prefill != "10.0.0.1:8000" {
		t.Fatalf("%+v", rec.Split)
	}
	list := strings.Split(d.Chosen, ",")
	slices.Sort(list)
	if strings.Join(list, ",") != "10.0.0.2:8000,10.0.0.3:8000" {
		t.Errorf("%s", d.Chosen)
	}
}

// TestNoPartner: without a pair of replicas, or with another policy, the reason says so; a
// request that may not be split has none.
func TestNoPartner(t *testing.T) {
	alone := apartFleet(fleet.RoleBoth, fleet.RoleBoth)
	alone[1].Version = "0.33.0"
	balance := policy.NameBalance
	for i, tt := range []struct {
		c      policy.Config
		fleet  []*fleet.Replica
		reason SplitReason
	}{
		{policy.Config{}, alone, SplitNoPartner},
		{policy.Config{}, replicas(2), SplitNoPartner},
		{policy.Config{Overrides: policy.Overrides{RoutePolicy: &balance}}, apartFleet(fleet.RolePrefill, fleet.RoleDecode), SplitOff},
	} {
		r := newRig(t, tt.c, tt.fleet...)
		if _, rec := r.maySplit(prompt(1, 0, 100)); rec.Split.Reason != tt.reason {
			t.Errorf("%d: %q, want %q", i, rec.Split.Reason, tt.reason)
		}
		if _, rec := r.ask(prompt(1, 0, 100)); rec.Split.Reason != "" || rec.Partners != nil {
			t.Errorf("%d: %+v", i, rec.Split)
		}
	}
}

// TestHandoverIsLearned: the time from the prefill's end to the event of the moved blocks
// is the next requests' handover, also if the prefill's answer comes before its event.
func TestHandoverIsLearned(t *testing.T) {
	for _, early := range []time.Duration{0, 50 * time.Millisecond} {
		r := newRig(t, policy.Config{}, apartFleet(fleet.RolePrefill, fleet.RoleDecode)...)
		learned := 0.0
		for i := range 60 {
			r.wait(time.Minute)
			r.busy(1)
			p := prompt(2+i, 0, 500)
			d, rec := r.maySplit(p)
			if d.Split == nil {
				t.Fatalf("%d: %+v", i, rec.Split)
			}
			r.wait(300*time.Millisecond - early)
			if early > 0 {
				d.Split.Done(0)
			}
			r.wait(early)
			r.stored(d.Split.Prefill, p)
			d.Split.Done(0)
			r.wait(400 * time.Millisecond)
			r.stored(first(d), p)
			d.Reservation.Release()
			learned = rec.Split.Remote.Handover
		}
		if learned < 0.35 || learned > 0.45 {
			t.Errorf("a handover of 0.4 s is learned as %.3f s", learned)
		}
		leg := r.account(prefillLeg)
		if leg.Speed() == 0 || leg.InFlight() != 0 || leg.Sentinels() != 0 {
			t.Errorf("speed %g, in flight %d, sentinels %d", leg.Speed(), leg.InFlight(), leg.Sentinels())
		}
	}
}

// chargeOn puts a request with so much prefill on an account.
func (r *rig) chargeOn(a *load.Account, prefill time.Duration) {
	now := r.decider.now().UnixNano()
	r.ledger.Lock()
	defer r.ledger.Unlock()
	new(load.Charge).Put(a, load.Terms{Sent: now, Due: now + int64(time.Hour), Expected: int64(prefill), Model: int64(prefill)})
}

// TestOtherRoutersKnowBothLegs: another router counts the prompt as coming to both replicas,
// and no longer to the one whose prefill failed.
func TestOtherRoutersKnowBothLegs(t *testing.T) {
	all := apartFleet(fleet.RolePrefill, fleet.RoleDecode)
	one, other, told := newRig(t, policy.Config{}, all...), newRig(t, policy.Config{}, all...), new(colleagues)
	one.decider.o.Peers = told
	one.chargeOn(one.account(decodeLeg), 3*time.Second)
	p := prompt(1, 0, 512)
	d, rec := one.maySplit(p)
	if d.Split == nil {
		t.Fatalf("%+v", rec.Split)
	}
	told.pass(t, other, Observed, Observed)
	coming := func() (at []int) {
		w := new(Work)
		other.decider.Decide(&Ask{Model: "m", Prompts: p, MaySplit: true, Dry: true}, w)
		return []int{candidate(t, &w.Record, prefillLeg).Match.Matched(), candidate(t, &w.Record, decodeLeg).Match.Matched()}
	}
	if got := coming(); !slices.Equal(got, []int{toldOf(512), toldOf(512)}) {
		t.Errorf("coming: %v", got)
	}
	if s := one.account(prefillLeg).Share(one.decider.now()); s.Requests != 1 || s.Pending == 0 {
		t.Errorf("other routers are told of %+v on the replica that prefills", s)
	}
	d.Split.Failed(SplitPrefillFailed)
	told.pass(t, other, Ended)
	if got := coming(); !slices.Equal(got, []int{0, toldOf(512)}) {
		t.Errorf("after the failure: %v", got)
	}
	d.Reservation.Release()
}

// TestOnlyThePrefillLegLoads: of a split request the replica that computes the prompt loads what
// it has below its GPU. The other one gets all tokens from it, and loads nothing.
func TestOnlyThePrefillLegLoads(t *testing.T) {
	slow := 1e-3
	r := newRig(t, policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"load_token": &slow}}}, apartFleet(fleet.RolePrefill, fleet.RoleDecode)...)
	r.busy(4)
	p := prompt(1, 0, 500)
	for _, rep := range r.fleet.Snapshot().Replicas {
		r.below(rep.Addr, prompt(1, 0, 10), index.TierCPU, false)
	}
	d, rec := r.maySplit(p)
	if d.Split == nil {
		t.Fatalf("not split: %+v", rec.Split)
	}
	if leg, own := d.Split.leg.Terms(), d.Reservation.own.Terms(); leg.Credited != 10*blockSize || own.Credited != 0 {
		t.Errorf("%d tokens are expected to be found below the GPU where the prompt is computed, %d where it is answered", leg.Credited, own.Credited)
	}
	r.ledger.Lock()
	defer r.ledger.Unlock()
	now := r.now.UnixNano()
	if leg, own := r.account(d.Split.Prefill).State(now).Loading, r.account(first(d)).State(now).Loading; leg <= 0 || own != 0 {
		t.Errorf("loads of %g s where the prompt is computed and %g s where it is answered", leg, own)
	}
}
