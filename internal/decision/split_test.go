package decision

import (
	"sync"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

const (
	prefillLeg = "10.0.0.1:8000"
	decodeLeg  = "10.0.0.2:8000"
)

// splitRequest charges a request of 1000 tokens whose prefill takes 100 ms on either
// replica.
func (r *rig) splitRequest() *Reservation {
	mv, _ := r.decider.Find("m", "")
	res := &Reservation{d: r.decider, mv: mv, here: mv.find(decodeLeg, 0)}
	now := r.decider.now().UnixNano()
	leg := load.Terms{Sent: now, Due: now + 1e9, Model: 1e8, Expected: 1e8, Wait: 1e8, Tokens: 1000}
	decode := load.Terms{Sent: now, Due: now + 2e9, Expected: 1e6, Model: 1e6, Tokens: 1000}
	r.ledger.Lock()
	res.splitOn(mv.find(prefillLeg, 0), leg, decode, leg)
	r.ledger.Unlock()
	return res
}

// TestSplitEndsOnce: whichever way a split ends, a further end changes nothing, and the
// end of the request leaves no charge.
func TestSplitEndsOnce(t *testing.T) {
	ends := map[SplitReason]func(*Split){
		SplitDone:           func(s *Split) { s.Done(1000) },
		SplitPrefillFailed:  func(s *Split) { s.Failed(SplitPrefillFailed) },
		SplitPrefillSlow:    func(s *Split) { s.Failed(SplitPrefillSlow) },
		SplitPrefillRefused: func(s *Split) { s.Failed(SplitPrefillRefused) },
		SplitNoParams:       func(s *Split) { s.Failed(SplitNoParams) },
		SplitPrefillBusy:    func(s *Split) { s.Failed(SplitPrefillBusy) }, // not asked, so it says nothing of the replica
		SplitClientGone:     (*Split).Abandoned,
	}
	for why, end := range ends {
		r := newRig(t, policy.Config{}, replicas(2)...)
		res := r.splitRequest()
		p, d := r.account(prefillLeg), r.account(decodeLeg)
		if p.InFlight() != 1 || d.InFlight() != 1 || p.Pending() != 0.1 || d.Pending() != 0.001 {
			t.Fatalf("both legs: in flight %d and %d, pending %g and %g", p.InFlight(), d.InFlight(), p.Pending(), d.Pending())
		}
		if now := r.decider.now().UnixNano(); p.State(now).Apart != 1 || d.State(now).Apart != 1 {
			t.Fatal("a leg counts as an answer of its replica")
		}
		if p.Parts() != (load.Parts{UnderWay: 1}) || d.Parts() != (load.Parts{}) {
			t.Errorf("parts %+v and %+v", p.Parts(), d.Parts())
		}
		res.split.Moves = 900
		r.wait(time.Millisecond)
		end(res.split)
		for _, again := range ends {
			again(res.split)
		}
		var computed, took load.Parts
		if why == SplitDone {
			computed.Computed, took.Answered, took.Moved = 1, 1, 900
		}
		if p.Parts() != computed || d.Parts() != took {
			t.Errorf("%s: parts %+v and %+v", why, p.Parts(), d.Parts())
		}
		var rec Record
		if res.split.Report(&rec); rec.Split.Reason != why || (rec.Split.Moved == 1000) != (why == SplitDone) {
			t.Errorf("%s ended as %+v", why, rec.Split)
		}
		if answered := rec.Split.Times.Answered; (answered == 0.001) != (why != SplitClientGone && why != SplitPrefillBusy) {
			t.Errorf("%s: answered after %g s", why, answered)
		}
		local := why != SplitDone && why != SplitClientGone
		if p.InFlight() != 0 || d.InFlight() != 1 || (d.Pending() == 0.1) != local {
			t.Errorf("%s: in flight %d and %d, pending %g", why, p.InFlight(), d.InFlight(), d.Pending())
		}
		if failed := why == SplitPrefillFailed || why == SplitPrefillSlow; (p.Failures() == 1) != failed {
			t.Errorf("%s: %d failures", why, p.Failures())
		}
		res.Release()
		for _, again := range ends {
			again(res.split)
		}
		if p.InFlight() != 0 || d.InFlight() != 0 || p.Pending() != 0 || d.Pending() != 0 || p.Live() != 0 || d.Live() != 0 || p.State(0).Apart != 0 || d.State(0).Apart != 0 {
			t.Errorf("%s: something stays", why)
		}
		if n := r.decider.Splits().Reasons; len(n) != 1 || n[why] != 1 {
			t.Errorf("%s: counted as %v", why, n)
		}
		if spent := r.decider.Splits().Prefill; (spent == fleet.Spent{Seconds: 0.001, Requests: 1}) != (why == SplitDone) {
			t.Errorf("%s: a prefill of which no event told took %+v", why, spent)
		}
	}
}

// TestSplitEndsWithItsRequest: a request that ends while its prompt is computed leaves no
// charge and no judgement.
func TestSplitEndsWithItsRequest(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	res := r.splitRequest()
	r.wait(time.Second)
	res.Release()
	p, d := r.account(prefillLeg), r.account(decodeLeg)
	if p.InFlight()+d.InFlight() != 0 || p.Failures() != 0 || res.split.Reason() != SplitClientGone {
		t.Errorf("in flight %d and %d, failures %d, %s", p.InFlight(), d.InFlight(), p.Failures(), res.split.Reason())
	}
}

// TestSplitSeenToByAnother: the charge of a prefill whose answer is not seen ends by its
// event, or when it is due.
func TestSplitSeenToByAnother(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	res := r.splitRequest()
	res.split.Sent()
	p := r.account(prefillLeg)
	if p.InFlight() != 1 || p.Pending() != 0.1 || res.split.Reason() != SplitDone {
		t.Errorf("in flight %d, pending %g, %s", p.InFlight(), p.Pending(), res.split.Reason())
	}
	r.wait(2 * time.Second)
	r.ledger.Settle()
	if p.InFlight() != 0 || p.Pending() != 0 {
		t.Errorf("due: in flight %d, pending %g", p.InFlight(), p.Pending())
	}
	res.Release()
	if p.InFlight() != 0 || p.Live() != 0 || p.Failures() != 0 {
		t.Errorf("ended: in flight %d, live %d", p.InFlight(), p.Live())
	}
}

// TestRingKeepsHowASplitEnded: a record is put before the prefill begins.
func TestRingKeepsHowASplitEnded(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	res, ring := r.splitRequest(), NewRing(1)
	seq := ring.Put(&Record{Subject: Subject{ID: "a"}, Split: SplitRecord{Reason: SplitDone}})
	res.split.Failed(SplitPrefillSlow)
	ring.Split(seq+1, "a", res.split)
	ring.Split(seq, "b", res.split)
	if rec := ring.Last(1, nil)[0]; rec.Split.Reason != SplitDone {
		t.Errorf("another record has %s", rec.Split.Reason)
	}
	ring.Split(seq, "a", res.split)
	if rec := ring.Last(1, nil)[0]; rec.Split.Reason != SplitPrefillSlow {
		t.Errorf("it has %s", rec.Split.Reason)
	}
	res.Release()
}

// TestSplitServedElsewhere: the replica that serves in place of the decode replica computes
// the whole prompt.
func TestSplitServedElsewhere(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(3)...)
	res := r.splitRequest()
	dec := Decision{Reservation: res, Split: res.split, Choice: Choice{Chosen: decodeLeg}}
	r.decider.Served(&dec, "10.0.0.3:8000")
	if at := r.account("10.0.0.3:8000"); at.Pending() != 0.1 || r.account(prefillLeg).InFlight() != 0 || r.account(decodeLeg).InFlight() != 0 {
		t.Errorf("pending %g", at.Pending())
	}
	res.split.Failed(SplitPrefillFailed)
	res.Release()
	for _, n := range []string{prefillLeg, decodeLeg, "10.0.0.3:8000"} {
		if r.account(n).InFlight() != 0 {
			t.Errorf("%s: a charge stays", n)
		}
	}
}

// TestSplitRace: the ends of a split and of its request may come at once.
func TestSplitRace(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	for range 200 {
		res := r.splitRequest()
		var all sync.WaitGroup
		for _, f := range []func(){
			func() { res.split.Failed(SplitPrefillFailed) }, func() { res.split.Done(0) }, res.split.Abandoned, res.Release,
		} {
			all.Go(f)
		}
		all.Wait()
	}
	for h, a := range r.ledger.All() {
		if a.InFlight() != 0 || a.Pending() != 0 || a.Live() != 0 {
			t.Errorf("%v: in flight %d, pending %g, live %d", h, a.InFlight(), a.Pending(), a.Live())
		}
	}
}

// TestMovedCacheIsNoFirstToken: the event of the moved blocks ends the wait for the prompt
// on the decode replica, and says nothing of its speed or of the first token's time.
func TestMovedCacheIsNoFirstToken(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	mv, _ := r.decider.Find("m", "")
	res := &Reservation{d: r.decider, mv: mv, here: mv.find(decodeLeg, 0)}
	p := prompt(1, 0, 1000)
	at := mv.find(prefillLeg, 0)
	content, _ := p.Sentinel(&mv.scopes[0], 0)
	now := r.decider.now().UnixNano()
	terms := load.Terms{Sent: now, Due: now + 10e9, Model: 6e8, Expected: 6e8, Wait: 6e8, Tokens: 16000, Sentinel: content}
	r.ledger.Lock()
	res.splitOn(at, terms, terms, terms)
	r.ledger.Unlock()
	r.wait(600 * time.Millisecond)
	r.stored(prefillLeg, p)
	r.wait(100 * time.Millisecond)
	r.stored(decodeLeg, p)
	d := r.ledger.Of(index.Holder{Replica: decodeLeg})
	if d.Awaiting() != 0 || !res.FirstTokenAt().IsZero() || d.Speed() != 0 {
		t.Errorf("awaiting %d, first token %v, speed %g", d.Awaiting(), res.FirstTokenAt(), d.Speed())
	}
	if a := r.account(prefillLeg); a.Awaiting() != 0 || a.Speed() == 0 {
		t.Errorf("the end of the prefill is not seen: %d", a.Awaiting())
	}
	r.wait(50 * time.Millisecond)
	res.split.HitOf(16)
	res.split.Done(16000)
	res.Release()
	var rec Record
	res.split.Report(&rec)
	if want := (SplitTimes{Computed: 0.6, Moved: 0.1, Answered: 0.75}); rec.Split.Times != want || rec.Split.Hit == nil || *rec.Split.Hit != 16 {
		t.Errorf("%+v, want %+v", rec.Split, want)
	}
	if got := r.decider.Splits(); got.Prefill != (fleet.Spent{Seconds: 0.6, Requests: 1}) || got.Move != (fleet.Spent{Seconds: 0.1, Requests: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestWhyNotSplit: the first candidate may be the partner, too; and a count of no tokens is one.
func TestWhyNotSplit(t *testing.T) {
	for want, c := range map[SplitReason]policy.Compared{
		SplitNoPartner: {P: -1}, SplitDone: {P: 0, Split: true}, SplitLocalWarm: {P: 0, Warm: true, Idle: true}, SplitLocalIdle: {P: 1, Idle: true}, SplitPrefillBusy: {P: 0},
	} {
		if got := splitReason(&c); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
	s := new(Split)
	if _, ok := s.Hit(); ok {
		t.Error("a hit is known that nobody has told")
	}
	s.HitOf(0)
	if n, ok := s.Hit(); n != 0 || !ok {
		t.Errorf("a hit of no tokens is %d, known: %v", n, ok)
	}
}
