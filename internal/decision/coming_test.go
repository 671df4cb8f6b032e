package decision

import (
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
)

// TestComingUntilEventsTell: from the decision on, the prefix counts at
// its replica; the events replace that, and silence ends it.
func TestComingUntilEventsTell(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	p := prompt(1, 0, 100)
	d, _ := r.ask(p)
	home := first(d)
	_, rec := r.ask(p)
	if c := candidate(t, rec, home); c.Match.Matched() != 100*blockSize || c.Match.Cached() != 0 {
		t.Errorf("just routed: %+v", c)
	}
	r.stored(home, p)
	_, rec = r.ask(p)
	if c := candidate(t, rec, home); c.Match.Matched() != 100*blockSize || c.Match.Cached() != 100*blockSize {
		t.Errorf("reported: %+v", c)
	}
	lost := prompt(2, 0, 100)
	d, _ = r.ask(lost)
	r.wait(time.Minute)
	r.index.Begin(index.Holder{Replica: "10.0.0.9:8000"}) // somebody else's batch does not matter
	if _, rec = r.ask(lost); candidate(t, rec, first(d)).Match.Matched() != 0 {
		t.Errorf("a minute later nothing was stored, but it still counts")
	}
}

// TestSpeculationIsWithdrawnWhenTheRequestFails: by its status, by the end of its
// response, or because the event that reports its first token had not come by
// then. Blocks that a replica has reported stay, however the response ended.
func TestSpeculationIsWithdrawnWhenTheRequestFails(t *testing.T) {
	unseen := func(*Reservation) {}
	whole := func(l *Reservation) { l.Ended(true) }
	broken := func(l *Reservation) { l.Ended(false) }
	for i, tt := range []struct {
		name   string
		status int
		ended  func(*Reservation)
		heard  bool
		stays  bool
	}{
		{"whole", 200, whole, false, true},
		{"broken off", 200, broken, false, false},
		{"an end that is not seen", 200, unseen, false, false},
		{"nothing is seen", 0, unseen, false, false},
		{"refused", 400, whole, false, false},
		{"an error", 503, whole, false, false},
		{"stored, then broken off", 200, broken, true, true},
		{"stored, nothing is seen", 0, unseen, true, true},
	} {
		r := newRig(t, policy.Config{}, replicas(2)...)
		p := prompt(i, 0, 100)
		d, _ := r.ask(p)
		if tt.heard {
			r.stored(first(d), p)
		}
		d.Reservation.Answered(tt.status)
		tt.ended(d.Reservation)
		d.Reservation.Release()
		_, rec := r.ask(p)
		if got := candidate(t, rec, first(d)).Match.Matched() > 0; got != tt.stays {
			t.Errorf("%s: counts as cached: %v, want %v", tt.name, got, tt.stays)
		}
	}
}

// TestComingEndsSoonAfterTheAnswer: events that have not come a moment later were lost, and the blocks
// may be evicted since. Where the answer is not seen, the prompt counts until its time.
func TestComingEndsSoonAfterTheAnswer(t *testing.T) {
	for status, stays := range map[int]bool{200: false, 0: true} {
		r := newRig(t, policy.Config{}, replicas(2)...)
		p := prompt(1, 0, 100)
		d, _ := r.ask(p)
		d.Reservation.Answered(status)
		d.Reservation.Ended(true)
		d.Reservation.Release()
		if _, rec := r.dry(p); rec.Predicted == 0 {
			t.Errorf("status %d: nothing is expected at once", status)
		}
		r.wait(eventGrace + time.Millisecond)
		if _, rec := r.dry(p); (rec.Predicted > 0) != stays {
			t.Errorf("status %d: %d tokens are expected later", status, rec.Predicted)
		}
	}
}

// TestPartsOfPromptsInFlight: a prompt that leaves one in flight in its midst finds what they share in
// full attention, and nothing where another group keeps the end of a prompt alone.
func TestPartsOfPromptsInFlight(t *testing.T) {
	for name, hybrid := range map[string]bool{"full attention": false, "groups": true} {
		r := newRig(t, policy.Config{}, replicas(1)...)
		if hybrid {
			r.hybrid(prompt(9, 0, 12), 12)
		}
		parted := func(end int) chained {
			return chained{blocks: append(prompt(1, 0, 16).blocks, prompt(end, 0, 16).blocks...), extra: 1}
		}
		r.ask(parted(2))
		want := 16 * blockSize
		if hybrid {
			want = 0
		}
		if _, rec := r.dry(parted(3)); rec.Predicted != want {
			t.Errorf("%s: %d tokens are predicted, want %d", name, rec.Predicted, want)
		}
	}
}

// TestTheNextTurnInFlight: a prompt in flight whose beginning is cached already is found whole,
// also in a cache with several groups.
func TestTheNextTurnInFlight(t *testing.T) {
	first, next := prompt(1, 0, 12), prompt(1, 0, 16) // their ends are at marks
	for name, stored := range map[string]func(*rig){
		"full attention": func(r *rig) { r.stored(one, first) },
		"groups":         func(r *rig) { r.hybrid(first, 12) },
	} {
		r := newRig(t, policy.Config{}, replicas(1)...)
		stored(r)
		if _, rec := r.ask(next); rec.Predicted != 12*blockSize {
			t.Errorf("%s: %d tokens are predicted before", name, rec.Predicted)
		}
		if _, rec := r.ask(next); rec.Predicted != 16*blockSize {
			t.Errorf("%s: %d tokens are predicted while the prompt is in flight", name, rec.Predicted)
		}
	}
}

// TestBurstOfOnePrompt is 512 identical prompts at once on 8 replicas.
func TestBurstOfOnePrompt(t *testing.T) {
	for _, blocks := range []int{20, 768, 4000} {
		r := newRig(t, policy.Config{}, replicas(8)...)
		p := prompt(1, 0, blocks)
		count, misses := map[string]int{}, 0
		for n := 1; n <= 512; n++ {
			d, rec := r.ask(p)
			count[first(d)]++
			if rec.Predicted == 0 {
				misses++
			}
			most := 0
			for _, k := range count {
				most = max(most, k)
			}
			if mean := float64(n) / 8; n >= 64 && float64(most) > 1.3*mean {
				t.Fatalf("%d blocks: after %d the busiest has %d, %.2f times the mean", blocks, n, most, float64(most)/mean)
			}
		}
		if hits, attainable := 512-misses, 512-8; float64(hits) < 0.9*float64(attainable) {
			t.Errorf("%d blocks: %d hits of %d attainable", blocks, hits, attainable)
		}
	}
}

// inNamespace is a prompt of a request with SGLang's extra_key.
type inNamespace struct{ chained }

func (inNamespace) Mixes() index.Mix { return index.Mix{Namespace: true} }

// TestNoSpeculationInNamespaces: a prompt with an extra_key does not count for the same prompt
// without it, whose keys it has besides those in its namespace.
func TestNoSpeculationInNamespaces(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	p := prompt(1, 0, 100)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: inNamespace{p}}, new(Work))
	_, rec := r.ask(p)
	if c := candidate(t, rec, first(d)); c.Match.Matched() != 0 {
		t.Errorf("%+v", c)
	}
}
