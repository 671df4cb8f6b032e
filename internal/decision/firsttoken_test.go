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
