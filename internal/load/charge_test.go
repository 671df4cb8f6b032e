package load

import (
	"testing"
	"time"

	"warmroute/internal/fleet"
)

// TestSumsOfCharges: a charge is taken off its account once, the prefill at the
// first token and the rest when it is released.
func TestSumsOfCharges(t *testing.T) {
	r := newRig(t)
	a := r.put(one, Terms{Expected: 2e9, Tokens: 100, Sentinel: 7})
	b := r.put(one, Terms{Expected: 1e9, Tokens: 30})
	r.want(one, sums{2, 2, 3, 130, 1})
	if a.Account() != r.Of(one) || a.Terms().Tokens != 100 || !a.Awaiting() {
		t.Errorf("%+v on %p", a.Terms(), a.Account())
	}
	if !a.FirstToken() || a.FirstToken() || a.Awaiting() {
		t.Error("the first token comes once")
	}
	r.want(one, sums{2, 1, 1, 130, 1})
	if !a.Release() {
		t.Error("released: the first token had come")
	}
	r.want(one, sums{1, 1, 1, 30, 0})
	if b.Release() {
		t.Error("released: the first token had not come")
	}
	r.want(one, sums{})
	if !a.Release() || !b.Release() {
		t.Error("released again: nothing is known but that it is over")
	}
	r.want(one, sums{})
	r.want(two, sums{})
	if s := r.Of(one).Share(r.now); s.Sent != 2 || s.Work != 3e9 {
		t.Errorf("charged so far: %+v", s)
	}
}

// TestAnswers: a request counts once for each of its answers, as its replica counts it, so that
// none of them is taken for another sender's; its prompt is computed once.
func TestAnswers(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		terms          Terms
		inFlight, live int
	}{
		{Terms{Answers: 8}, 8, 800}, {Terms{Prompts: 4, Answers: 2}, 8, 200}, {Terms{Prompts: 3}, 3, 100}, {Terms{Prompts: 1, Answers: 1}, 1, 100},
		{Terms{Answers: 1 << 30, Prompts: 1 << 12}, mostWeight, 100 * mostWeight},
	} {
		c.terms.Expected, c.terms.Tokens = 2e9, 100
		a := r.put(one, c.terms)
		r.want(one, sums{c.inFlight, 1, 2, int64(c.live), 0})
		if c.terms.Prompts*c.terms.Answers == 8 && !a.Alone() {
			t.Errorf("%+v: not alone", c.terms)
		}
		r.wait(time.Second)
		r.Lock()
		r.Of(one).Scrape(fleet.Load{At: r.now, Running: float64(c.inFlight) / 2, Waiting: float64(c.inFlight) / 2}, true)
		r.Unlock()
		if s := r.state(one); s.Foreign != 0 {
			t.Errorf("%+v: its answers count as %v s of others' prefill", c.terms, s.Foreign)
		}
		a.FirstToken()
		r.want(one, sums{c.inFlight, 0, 0, int64(c.live), 0})
		a.Release()
		r.want(one, sums{})
		r.wait(time.Second)
		r.Lock()
		r.Of(one).Scrape(fleet.Load{At: r.now}, true)
		r.Unlock()
	}
}

// TestJudge: which ends count as failures of the replica, which end a row of them, and after
// which the prompt counts as refused. An early end without a status shows a refusal, which may be
// the request's own, and nothing of the replica.
func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		status  int
		came    bool
		terms   Terms
		after   time.Duration
		refused bool
		row     int // failures in a row afterwards, of one before
	}{
		"answered":                       {200, true, Terms{}, time.Second, false, 0},
		"answered, no token seen":        {200, false, Terms{}, 0, false, 0},
		"a redirect":                     {399, true, Terms{}, 0, false, 0},
		"the client's fault":             {400, true, Terms{}, 0, true, 1},
		"a body that is too large":       {413, false, Terms{}, 0, true, 1},
		"the client's fault, at most":    {499, true, Terms{}, 0, true, 1},
		"a server error":                 {500, true, Terms{}, time.Hour, true, 2},
		"Envoy's patience is over":       {504, false, Terms{}, time.Hour, true, 1},
		"what vLLM cannot do":            {501, false, Terms{}, time.Hour, true, 1},
		"no status, a token came":        {0, true, Terms{}, 0, false, 0},
		"ended at once":                  {0, false, Terms{}, 0, true, 1},
		"within a step":                  {0, false, Terms{}, 5*time.Millisecond - 1, true, 1},
		"after a step":                   {0, false, Terms{}, 5 * time.Millisecond, false, 1},
		"a long prefill, too soon":       {0, false, Terms{Expected: 4e9}, time.Second - 1, true, 1},
		"a long prefill, possible":       {0, false, Terms{Expected: 4e9}, time.Second, false, 1},
		"wholly cached, at once":         {0, false, Terms{Expected: 4e9, Cached: true}, 0, false, 1},
		"no reports, a long prefill":     {0, false, Terms{Expected: 4e9, Guessed: true}, 5 * time.Millisecond, false, 1},
		"no reports, sooner than a step": {0, false, Terms{Expected: 4e9, Guessed: true}, 5*time.Millisecond - 1, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.unlogged.Store(mostUnlogged)
			c := r.put(one, tt.terms)
			c.account.failed(r.nanos())
			r.wait(tt.after)
			if refused := c.RecordEnd(tt.status, tt.came); refused != tt.refused {
				t.Errorf("refused: %v", refused)
			}
			if row := r.Of(one).Failures(); row != tt.row {
				t.Errorf("%d failures in a row, want %d", row, tt.row)
			}
		})
	}
}

// TestOneRequestTriesALastResort: when its time is over, the others follow once that one may be known
// to have failed at once; an answer ends that.
func TestOneRequestTriesALastResort(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	failing := func(what string, want bool) {
		t.Helper()
		if a.Failing(r.nanos()) != want {
			t.Errorf("%s: it is a last resort %v, want %v", what, !want, want)
		}
	}
	tried := func() { r.put(one, Terms{Sent: r.nanos()}) }
	tried()
	failing("nothing has failed", false)
	for range failStreak {
		a.Logged(true)
	}
	tried()
	r.wait(failPenalty)
	failing("its time is over", false)
	tried()
	failing("one tries it", true)
	r.wait(probeFor)
	failing("that has not failed at once", false)
	tried()
	a.Logged(false)
	tried()
	failing("it answers", false)
}

// TestTheAccessLogTellsWhoFailed: while it tells of requests, the status that a stream shows is no
// failure by itself. A stream's status counts where nothing is logged.
func TestTheAccessLogTellsWhoFailed(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	step := func(what string, row int, do func()) {
		t.Helper()
		if do(); a.Failures() != row {
			t.Errorf("%s: %d failures in a row, want %d", what, a.Failures(), row)
		}
	}
	shows := func(status, times int) func() {
		return func() {
			for range times {
				r.put(one, Terms{}).RecordEnd(status, false)
			}
		}
	}
	step("two failures", 2, func() { a.Logged(true); a.Logged(true) })
	step("an answer", 0, func() { a.Logged(false) })
	step("a leg that failed", 1, func() { r.put(one, Terms{SplitTerms: SplitTerms{Leg: true}}).RecordEnd(502, false) })
	step("statuses, of which the log may tell soon", 1, shows(503, mostUnlogged))
	step("nothing is logged", 3, shows(503, 2))
	r.Logged()
	step("another filter of Envoy refuses", 3, shows(503, 100))
	step("the log tells of a failure", 4, func() { a.Logged(true) })
	r.wait(loggedFor)
	step("the log has told nothing for long", 5, shows(503, 1))
	step("an answer of another replica", 6, func() { r.put(one, Terms{}).Retried(r.nanos()) })
	step("one that took long", 6, func() {
		c := r.put(one, Terms{})
		r.wait(RetriedWithin + 1)
		c.Retried(r.nanos())
	})
	r.Logged()
	step("one of which the log tells", 6, func() { r.put(one, Terms{}).Retried(r.nanos()) })
	r.Logged()
	r.wait(loggedFor)
	step("no request came for long", 6, shows(503, mostUnlogged))
	step("a stream shows an answer", 0, shows(200, 1))
}

// TestPenalty: a replica that fails three times in a row is a last resort for a
// second, for twice as long with every further failure, and for half a minute at
// most; one success ends that.
func TestPenalty(t *testing.T) {
	r := newRig(t)
	c := r.put(one, Terms{})
	for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 30, 30, 30} {
		c.account.failed(r.nanos())
		if got := time.Duration(r.Of(one).Share(r.now).Failing); got != want*time.Second {
			t.Errorf("failure %d: a last resort for %v, want %v", i+1, got, want*time.Second)
		}
	}
	r.wait(30*time.Second - 1)
	if !r.state(one).Failing {
		t.Error("not a last resort any more before its time is over")
	}
	r.wait(1)
	if r.state(one).Failing {
		t.Error("a last resort after its time")
	}
	c.account.failed(r.nanos())
	c.RecordEnd(200, true)
	if r.state(one).Failing || r.Of(one).Failures() != 0 {
		t.Error("a success does not end the row")
	}
	for range 100 { // the doubling does not overflow
		c.account.failed(r.nanos())
	}
	if got := time.Duration(r.Of(one).Share(r.now).Failing); got != failPenaltyMost {
		t.Errorf("after 100 failures a last resort for %v", got)
	}
}
