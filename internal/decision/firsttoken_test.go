package decision

import (
	"testing"
	"time"

	"warmroute/internal/decision/policy"
)

// TestFirstTokenByEvent: the event that stores the prompt's last block ends the
// wait, not an earlier block, not the response headers.
func TestFirstTokenByEvent(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	p := prompt(1, 0, 1000)
	d, _ := r.ask(p)
	account := r.account(first(d))
	if account.Awaiting() != 1 || account.Pending() < 0.6 {
		t.Fatalf("awaiting %d, %.3f s", account.Awaiting(), account.Pending())
	}
	r.wait(300 * time.Millisecond)
	half := p
	half.blocks = p.blocks[:512] // a chunk of 8192 tokens
	r.stored(first(d), half)
	d.Reservation.Answered(200)
	if account.Awaiting() != 1 {
		t.Error("a first chunk or the response headers count as the first token")
	}
	r.wait(300 * time.Millisecond)
	r.stored(first(d), p)
	if account.Awaiting() != 0 || account.Pending() != 0 || account.InFlight() != 1 {
		t.Errorf("after the last block: awaiting %d, pending %g, in flight %d", account.Awaiting(), account.Pending(), account.InFlight())
	}
	if s := account.Speed(); s < 0.8 || s > 1.05 { // 0.6 s where 0.69 were modelled
		t.Errorf("learned speed %g", s)
	}
	d.Reservation.Release()
	if account.InFlight() != 0 || account.Live() != 0 || account.Sentinels() != 0 {
		t.Errorf("something stays: in flight %d, live %d, sentinels %d", account.InFlight(), account.Live(), account.Sentinels())
	}
}

// TestFirstTokenWithoutEvent: a request that stores nothing new counts as
// started after its expected time, or when a later one has started.
func TestFirstTokenWithoutEvent(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	p := prompt(1, 0, 100)
	r.stored("10.0.0.1:8000", p)
	hit, _ := r.ask(p)
	r.wait(time.Millisecond)
	if _, rec := r.ask(p); candidate(t, rec, first(hit)).Awaiting > 1 {
		t.Errorf("one token to compute still awaited after 1 ms: %+v", rec.Candidates)
	}
	long, _ := r.ask(prompt(2, 0, 2000))
	behind, _ := r.ask(p) // waits behind the long one
	r.wait(10 * time.Millisecond)
	if _, rec := r.ask(p); candidate(t, rec, first(hit)).Awaiting < 2 {
		t.Errorf("the hit behind a long prefill counts as started: %+v", rec.Candidates)
	}
	later := prompt(3, 0, 10)
	if d, _ := r.ask(later); d.Reservation == nil {
		t.Fatal("no hint")
	}
	r.stored("10.0.0.1:8000", later)
	r.ask(p)
	if behind.Reservation.own.Awaiting() {
		t.Error("a later request has its first token, this one does not")
	}
	if !long.Reservation.own.Awaiting() {
		t.Error("what an event will tell of was guessed")
	}
	r.wait(time.Hour) // the event was lost
	r.ask(p)
	if long.Reservation.own.Awaiting() {
		t.Error("a first token is awaited for ever")
	}
}

// TestLateNewsOfFirstTokens: if events come a second late, requests that found the
// engine idle show it, and the work that the engine must have done in that second
// is taken off, in order, but no more.
func TestLateNewsOfFirstTokens(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	const prefill, late = 350 * time.Millisecond, time.Second // of 9000 tokens, and the news
	account := r.account("10.0.0.1:8000")
	next := 0
	send := func() (Decision, chained) {
		next++
		p := prompt(next, 0, 562)
		d, _ := r.ask(p)
		return d, p
	}
	if send(); account.Lag() != 0 {
		t.Fatalf("%.2f s late before there was any news", account.Lag())
	}
	for range 40 {
		r.wait(5 * time.Second)
		a, pa := send()
		b, pb := send()
		r.wait(prefill + late)
		r.stored("10.0.0.1:8000", pa)
		r.wait(prefill) // which distinguishes a slow replica from late reports
		r.stored("10.0.0.1:8000", pb)
		a.Reservation.Release()
		b.Reservation.Release()
	}
	if l := account.Lag(); l < 0.8 || l > 1.1 {
		t.Fatalf("the news are %.2f s late, learned %.2f s", late.Seconds(), l)
	}
	r.wait(5 * time.Second)
	a, pa := send()
	r.wait(100 * time.Millisecond)
	b, _ := send()
	left := func(awaiting int, least, most float64) {
		t.Helper()
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Prompts: prompt(999, 0, 1), Dry: true}, w)
		if c := w.Record.Candidates[0].State; c.Awaiting != awaiting || c.Pending < least || c.Pending > most {
			t.Errorf("%d awaiting, %.3f s ahead; want %d, %.2f to %.2f s", c.Awaiting, c.Pending, awaiting, least, most)
		}
	}
	left(2, 0.5, 0.8) // 0.25 s of the first, all of the second
	r.wait(400 * time.Millisecond)
	left(1, 0.1, 0.5) // the first must have come, though it was not reported
	r.wait(400 * time.Millisecond)
	left(0, 0, 0)
	r.stored("10.0.0.1:8000", pa)
	r.wait(2 * late)
	left(1, 0.3, 0.5) // news of the second are overdue: it waits still
	a.Reservation.Release()
	b.Reservation.Release()
}

// TestASidecarTellsOfNoFirstTokens: its reports have the cached blocks, but nobody
// waits for them as a sign that a prefill is over.
func TestASidecarTellsOfNoFirstTokens(t *testing.T) {
	rep := replica(1)
	rep.Events, rep.Sidecar = nil, true
	r := newRig(t, policy.Config{}, rep)
	r.stored(firstAddr, prompt(9, 0, 1))
	d, rec := r.ask(prompt(1, 0, 100))
	if d.Reason != ReasonCold || rec.Blocks != 100 {
		t.Fatalf("not decided by its blocks: %+v", d)
	}
	r.wait(70 * time.Millisecond) // 58 ms of prefill
	r.ask(prompt(2, 0, 100))
	if d.Reservation.own.Awaiting() {
		t.Error("its first token is still awaited after the expected time")
	}
}
