package load

import (
	"testing"
	"time"

	"warmroute/internal/fleet"
)

func (r *rig) scrape(page fleet.Load, events bool) {
	r.wait(time.Second)
	page.At = r.now
	r.Lock()
	defer r.Unlock()
	r.Of(one).Scrape(page, events)
}

func (r *rig) foreign(seconds, tokens float64) {
	r.t.Helper()
	if s := r.state(one); !near(s.Foreign, seconds) || !near(s.Live-float64(r.Of(one).Live()), tokens) {
		r.t.Errorf("others: %g s and %g tokens, want %g and %g", s.Foreign, s.Live-float64(r.Of(one).Live()), seconds, tokens)
	}
}

// TestStrangers: requests that a replica reports beyond the most that routers had
// in flight since its last page came around them; they cost as much as the
// router's own.
func TestStrangers(t *testing.T) {
	r := newRig(t)
	r.scrape(fleet.Load{Running: 3, Waiting: 1}, true)
	r.foreign(typicalPrefill, 0) // before any of ours was seen
	c := r.put(one, Terms{})
	r.Lock()
	c.Noted(2, 9, 0)
	r.Unlock()
	r.scrape(fleet.Load{Running: 6, Waiting: 2}, true) // 7 of 8 are others'
	r.foreign(7*2./8*2, 0)
	r.Of(one).scraped.tokens.Add(100, 1, 1)
	r.foreign(7*2./8*2, 7*6./8*100)
	c.Release()
	r.scrape(fleet.Load{Running: 1}, true) // it ran when the page before was read
	r.foreign(0, 0)
	r.scrape(fleet.Load{Running: 1}, true)
	r.foreign(0, 100)
	r.scrape(fleet.Load{}, true)
	r.foreign(0, 0)
	r.Of(one).SetShare("b", Share{Requests: 2}, r.now)
	r.Of(one).SetShare("b", Share{}, r.now)
	r.scrape(fleet.Load{Running: 3}, true) // two of which another router's
	r.foreign(0, 100)
	old := fleet.Load{Running: 50, At: r.now}
	r.Lock()
	r.Of(one).Scrape(old, true) // the same page again
	r.Unlock()
	r.foreign(0, 100)
	old.Running = 0
	r.Lock()
	r.Of(one).Scrape(old, true) // no newer one has come for a while
	r.Unlock()
	r.foreign(0, 0)
	r.Of(one).SetShare("b", Share{Requests: 1}, r.now)
	r.scrape(fleet.Load{Running: 2}, true)
	r.foreign(0, 100)
	r.put(one, Terms{})
	r.scrape(fleet.Load{Running: 2}, true) // one ours, one another router's
	r.foreign(0, 0)
	r.Of(one).SetShare("b", Share{}, r.now)
	r.scrape(fleet.Load{Running: 2}, true) // both still counted since the page before
	r.foreign(0, 0)
}

// TestWhatOursCost: the first sets the mean, the others move it.
func TestWhatOursCost(t *testing.T) {
	s := scraped{waiting: 1, running: 1}
	want := func(cost, tokens float64) {
		t.Helper()
		if c, n := s.foreign(); !near(c, cost) || !near(n, tokens) {
			t.Errorf("%g s, %g tokens, want %g, %g", c, n, cost, tokens)
		}
	}
	s.sent(2, 5, 100)
	want(2, 100)
	s.sent(4, 7, 300)
	const before = 1 - sentShare
	if want((2*before+4)/(before+1), (100*before+300)/(before+1)); s.wait != 12 || s.waits != 2 {
		t.Errorf("%g s of %g requests", s.wait, s.waits)
	}
	for range 200 {
		s.sent(8, 7, 400)
	}
	if c, n := s.foreign(); c < 7.9 || n < 399 {
		t.Errorf("%g s, %g tokens of many of 8 s and 400 tokens", c, n)
	}
}

// TestTheHistogramTeachesSpeed where no events do, most requests in it are ours,
// and there was a page before.
func TestTheHistogramTeachesSpeed(t *testing.T) {
	for name, tt := range map[string]struct {
		events, first bool
		ours          int
		n, sum        float64 // of the histogram
		speed         float64
	}{
		"twice the expected":         {ours: 2, n: 2, sum: 4, speed: 2},
		"as much as strangers allow": {ours: 2, n: 4, sum: 8, speed: 2},
		"too many strangers":         {ours: 2, n: 5, sum: 10},
		"events tell":                {events: true, ours: 2, n: 2, sum: 4},
		"the first page":             {first: true, ours: 2, n: 2, sum: 4},
		"none of ours":               {n: 1, sum: 2},
		"nothing observed":           {ours: 2, sum: 4},
		"no time":                    {ours: 2, n: 2},
	} {
		r := newRig(t)
		before := fleet.Load{Times: fleet.Times{TTFT: fleet.Spent{Seconds: 100, Requests: 50}}}
		if tt.first {
			before = fleet.Load{}
		} else {
			r.scrape(before, tt.events)
		}
		a := r.Of(one)
		for range tt.ours {
			c := r.put(one, Terms{})
			r.Lock()
			c.Noted(1, 1, 0) // expected to wait for a second
			r.Unlock()
		}
		r.scrape(fleet.Load{Times: fleet.Times{TTFT: fleet.Spent{Seconds: before.TTFT.Seconds + tt.sum, Requests: before.TTFT.Requests + tt.n}}}, tt.events)
		want := 0.0
		if tt.speed > 0 { // pacePrior of speed 1, and a share of this
			const prior = (1 - paceShare) * pacePrior
			want = (prior + tt.speed) / (prior + 1)
		}
		if !near(a.Speed(), want) {
			t.Errorf("%s: speed %g, want %g", name, a.Speed(), want)
		}
		if s := &a.scraped; s.wait != 0 || s.waits != 0 || s.ttft.Requests != before.TTFT.Requests+tt.n {
			t.Errorf("%s: the page is not the base of the next: %+v", name, s)
		}
	}
	// The learned speed multiplies with the terms of the charges.
	r := newRig(t)
	r.scrape(fleet.Load{Times: fleet.Times{TTFT: fleet.Spent{Seconds: 1, Requests: 1}}}, false)
	a := r.Of(one)
	a.pace.learned.Add(60, 20, 1)
	c := r.put(one, Terms{})
	r.Lock()
	c.Noted(1, 2, 0)
	r.Unlock()
	r.scrape(fleet.Load{Times: fleet.Times{TTFT: fleet.Spent{Seconds: 5, Requests: 2}}}, false) // 4 s where 2 were expected of a replica of speed 3
	if want := 3 + paceShare*(6-3); !near(a.Speed(), want) {
		t.Errorf("speed %g, want %g", a.Speed(), want)
	}
}

// TestPlaced: blocks sent to a holder weigh half after two minutes.
func TestPlaced(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	note := func(blocks int) {
		c := r.put(one, Terms{})
		r.Lock()
		defer r.Unlock()
		c.Noted(1, 1, blocks)
	}
	weigh := func(want float64) {
		t.Helper()
		if got := a.Placed(r.nanos()); !near(got, want) { // which NaN is not
			t.Errorf("weight %g, want %g", got, want)
		}
	}
	weigh(0)
	note(8)
	weigh(8)
	r.wait(2 * time.Minute)
	weigh(4)
	note(1)
	weigh(5)
	note(0)
	weigh(5)
	r.wait(4 * time.Minute)
	weigh(1.25)
}

// TestRateByCounters: the replica's own counters tell its speed, whoever sent the requests. A page
// after a restart, and too little prefill, tell nothing.
func TestRateByCounters(t *testing.T) {
	r := newRig(t)
	page := func(computed, seconds, rate float64) {
		t.Helper()
		p := fleet.Load{PrefixQueries: computed + 700, PrefixHits: 500, Times: fleet.Times{Prefill: fleet.Spent{Seconds: seconds}}}
		p.LoadedTokens = 200
		r.scrape(p, true)
		if got := r.Of(one).Rate(); got < 0.99*rate || got > 1.01*rate {
			t.Errorf("%g tokens/s, want %g", got, rate)
		}
	}
	page(900_000, 100, 0)
	page(902_000, 100.4, 0)
	page(910_000, 100.4, 0) // more are being computed
	page(910_000, 102.5, 4000)
	page(8000, 2, 4000) // its process is another one
	page(16_000, 4, 4000)
}
