package decision

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/sessions"
	"warmroute/render/testkit/must"
)

// crammed returns a rig with one replica, whose speed is known and whose cache a session at work
// fills by half, and the request of that session.
func crammed(t *testing.T, set policy.Sessions) (*rig, *Reservation) {
	all := caches(1, 1500)
	r := newRig(t, policy.Config{Sessions: set}, all...)
	first := prompt(8, 0, 200)
	d, _ := r.ask(first)
	r.wait(time.Second)
	r.stored(all[0].Addr, first)
	d.Reservation.Release()
	r.wait(time.Hour)
	d, _ = r.ask(prompt(1, 0, 800))
	return r, d.Reservation
}

func TestColdPromptIsHeld(t *testing.T) {
	r, busy := crammed(t, policy.Sessions{Share: 1e-6})
	account := r.account("10.0.0.1:8000")
	w, a := new(Work), &Ask{Model: "m", Prompts: prompt(2, 0, 800), MayHold: true}
	d := r.decider.Decide(a, w)
	if d.Reason != ReasonHeld || d.Held == nil || d.Reservation != nil || d.Chosen != "" {
		t.Fatalf("a prompt that would evict a session at work: %+v", d)
	}
	if n := account.State(r.now.UnixNano()).InFlight; n != 1 || w.Record.Chosen != "" {
		t.Errorf("%d requests are charged; the record chose %q", n, w.Record.Chosen)
	}
	if n := r.decider.WakeHeld(); n != 1 {
		t.Errorf("%d requests are held", n)
	}
	if dry, _ := r.dry(prompt(3, 0, 800)); dry.Held != nil || r.decider.WakeHeld() != 1 {
		t.Errorf("a dry decision holds: %+v", dry)
	}
	busy.Answered(200)
	busy.Ended(true)
	busy.Release()
	if r.decider.WakeHeld(); isReady(d.Held) {
		t.Fatal("it goes right after the session's answer")
	}
	r.wait(time.Hour)
	if r.decider.WakeHeld(); !isReady(d.Held) {
		t.Fatal("it does not go when the session is no longer live")
	}
	a.Ticket = d.Held
	if d = r.decider.Decide(a, w); d.Held != nil || d.Reservation == nil || r.decider.WakeHeld() != 0 {
		t.Fatalf("it is held again: %+v", d)
	}
	if session, turn := d.Reservation.Session(); session == 0 || turn != 1 {
		t.Errorf("it is turn %d of session %d", turn, session)
	}
}

// TestHeldRequestGoesOtherwise: a held request that is then decided for another reason keeps no
// other request waiting.
func TestHeldRequestGoesOtherwise(t *testing.T) {
	r, _ := crammed(t, policy.Sessions{Share: 1e-6})
	a := &Ask{Model: "m", Prompts: prompt(2, 0, 800), MayHold: true}
	d := r.decider.Decide(a, new(Work))
	a.Ticket, a.Ended = d.Held, func() bool { return true }
	if d = r.decider.Decide(a, new(Work)); d.Reason != ReasonBudget || r.decider.WakeHeld() != 0 {
		t.Errorf("%+v; %d are held", d, r.decider.WakeHeld())
	}
}

// TestHeldRequestsGoToWhoJoins: held requests are decided again when a replica becomes ready, one
// after the other, and a replica that leaves keeps none of them waiting.
func TestHeldRequestsGoToWhoJoins(t *testing.T) {
	for name, stays := range map[string]int{"joins": 1, "takes its place": 0} {
		r, _ := crammed(t, policy.Sessions{Share: 1e-6})
		var asks []*Ask
		for i := range 2 {
			a := &Ask{Model: "m", Prompts: prompt(2+i, 0, 800), MayHold: true}
			a.Ticket = r.decider.Decide(a, new(Work)).Held
			asks = append(asks, a)
		}
		if r.decider.WakeHeld(); isReady(asks[0].Ticket) {
			t.Fatal("the fleet is as it was")
		}
		both := append(caches(1, 1500), replica(2))
		r.fleet.Set()
		if r.wait(time.Minute); r.decider.WakeHeld() != 2 || isReady(asks[0].Ticket) {
			t.Errorf("%s: they do not wait for a replica", name)
		}
		r.fleet.Set(both[1-stays:]...)
		if r.decider.WakeHeld(); isReady(asks[0].Ticket) {
			t.Errorf("%s: Envoy does not know it yet", name)
		}
		r.wait(envoysKnow)
		for i, a := range asks {
			if r.decider.WakeHeld(); !isReady(a.Ticket) {
				t.Fatalf("%s: number %d is not decided again", name, i)
			}
			w := new(Work)
			if d := r.decider.Decide(a, w); i == 0 && (d.Held != nil || !strings.HasPrefix(w.Record.Chosen, both[1].Addr)) {
				t.Errorf("%s: it goes to %q, held %v", name, w.Record.Chosen, d.Held != nil)
			}
		}
	}
}

// TestHeldRequestsGoToWhoFailsNoMore: a replica that was a last resort when they came has room later.
func TestHeldRequestsGoToWhoFailsNoMore(t *testing.T) {
	r, _ := crammed(t, policy.Sessions{Share: 1e-6})
	both := append(caches(1, 1500), replica(2))
	r.fleet.Set(both...)
	for range 3 {
		r.account(both[1].Addr).Logged(true)
	}
	a, w := &Ask{Model: "m", Prompts: prompt(2, 0, 800), MayHold: true}, new(Work)
	if a.Ticket = r.decider.Decide(a, w).Held; a.Ticket == nil {
		t.Fatalf("it goes to %q", w.Record.Chosen)
	}
	if r.wait(envoysKnow / 2); r.decider.WakeHeld() != 1 || isReady(a.Ticket) {
		t.Fatal("nothing has changed")
	}
	r.wait(time.Minute)
	r.fleet.Set(both...) // as each scrape does
	r.decider.WakeHeld()
	r.wait(envoysKnow)
	if r.decider.WakeHeld(); !isReady(a.Ticket) {
		t.Fatal("it is not decided again")
	}
	if d := r.decider.Decide(a, w); d.Held != nil || !strings.HasPrefix(w.Record.Chosen, both[1].Addr) {
		t.Errorf("it goes to %q, held %v", w.Record.Chosen, d.Held != nil)
	}
}

// TestHeldRequestsWaitForTheirReplica: when the only one breaks down, also before its health tells; and
// they go on when it is back, or nobody knows their model any more.
func TestHeldRequestsWaitForTheirReplica(t *testing.T) {
	r, busy := crammed(t, policy.Sessions{Share: 1e-6})
	ask := &Ask{Model: "m", Prompts: prompt(2, 0, 800), MayHold: true}
	ask.Ticket = r.decider.Decide(ask, new(Work)).Held
	waits := func(when string, after time.Duration, want bool) {
		t.Helper()
		r.wait(after)
		for range 3 { // a request that is decided again may be held again
			if r.decider.WakeHeld(); isReady(ask.Ticket) {
				if ask.Ticket = r.decider.Decide(ask, new(Work)).Held; ask.Ticket == nil {
					break
				}
			}
		}
		if (ask.Ticket != nil) != want {
			t.Fatalf("%s: it waits %v, want %v", when, ask.Ticket != nil, want)
		}
	}
	busy.Answered(503)
	busy.Release()
	waits("it broke", 0, true)
	waits("later", 4*time.Second, true)
	one := *r.fleet.Snapshot().Replicas[0]
	down, up := one, one
	down.Ready, up.Joined = false, one.Joined+1
	r.fleet.Set(&down)
	r.decider.Forget(one.Addr)
	waits("it is down", time.Hour, true)
	r.fleet.Set(&up)
	waits("Envoy does not know it yet", envoysKnow/2, true)
	waits("it is back", envoysKnow, false)

	r, _ = crammed(t, policy.Sessions{Share: 1e-6})
	ask.Ticket = r.decider.Decide(ask, new(Work)).Held
	other := *r.fleet.Snapshot().Replicas[0]
	other.Models = []fleet.Model{{ID: "other", Base: "other"}}
	r.fleet.Set(&other)
	waits("its model has another name", time.Minute, false)
}

func isReady(k *sessions.Ticket) bool {
	select {
	case <-k.Ready():
		return true
	default:
		return false
	}
}

func TestFullQueueIsRefused(t *testing.T) {
	r, _ := crammed(t, policy.Sessions{Share: 1e-6, Queue: 1})
	for i, want := range []Reason{ReasonHeld, ReasonHeldFull} {
		d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(2+i, 0, 800), MayHold: true}, new(Work))
		if d.Reason != want || d.Held == nil || d.Reservation != nil {
			t.Errorf("number %d: %+v, want %s", i, d, want)
		}
	}
}

// TestNotHeld: requests go as before where holding is off, where their caller cannot wait, and
// where the gateway needs a pick.
func TestNotHeld(t *testing.T) {
	for name, c := range map[string]struct {
		share float64
		ask   Ask
	}{"off": {0, Ask{MayHold: true}}, "no waiting": {1e-6, Ask{}}, "before all others": {1e-6, Ask{Priority: 1}}, "a pick": {1e-6, Ask{MayHold: true, Must: true}}} {
		r, _ := crammed(t, policy.Sessions{Share: c.share})
		a := c.ask
		a.Model, a.Prompts = "m", prompt(2, 0, 800)
		d := r.decider.Decide(&a, new(Work))
		if d.Held != nil || d.Reservation == nil {
			t.Errorf("%s: %+v", name, d)
			continue
		}
		if session, _ := d.Reservation.Session(); (session == 0) != (c.share == 0) {
			t.Errorf("%s: it is of session %d", name, session)
		}
		if ordered := c.share > 0 && a.Priority == 0; (d.Order != 0) != ordered {
			t.Errorf("%s: the order %d", name, d.Order)
		}
	}
}

// TestALoadedPromptIsNotHeld: one that lies in CPU memory goes at once, where loading it takes less
// time than half of its prefill.
func TestALoadedPromptIsNotHeld(t *testing.T) {
	for seconds, held := range map[float64]bool{1e-7: false, 1: true} {
		r, busy := crammed(t, policy.Sessions{Share: 1e-6})
		must.Get(r.book.Replace(policy.Config{Sessions: policy.Sessions{Share: 1e-6}, Overrides: policy.Overrides{TTFT: policy.Constants{"load_token": &seconds}}}))(t)
		p := prompt(2, 0, 800)
		r.below("10.0.0.1:8000", p, index.TierCPU, false)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: p, MayHold: true}, new(Work))
		if (d.Held != nil) != held {
			t.Errorf("%g s to load a token: held %v, want %v", seconds, d.Held != nil, held)
		}
		busy.Release()
	}
}

// telling returns a rig whose replicas tell their size, 24,000 tokens, and their speed themselves.
func telling(t *testing.T, n int) (*rig, []*fleet.Replica) {
	all := caches(n, 1500)
	r := newRig(t, policy.Config{Sessions: policy.Sessions{Share: 1e-6}}, all...)
	r.counting(all, 0, 0)
	r.counting(all, 30_000, 10)
	return r, all
}

// counting sets the pages of replicas that have computed so many tokens in so many seconds.
func (r *rig) counting(all []*fleet.Replica, tokens, seconds float64) {
	r.wait(time.Second)
	next := make([]*fleet.Replica, len(all))
	for i, was := range all {
		c := *was
		c.Load = []fleet.Load{{At: r.now, PrefixQueries: tokens, Times: fleet.Times{Prefill: fleet.Spent{Seconds: seconds, Requests: 10}}}}
		next[i] = &c
	}
	r.fleet.Set(next...)
	d, _ := r.ask(prompt(99, 0, 1)) // a decision reads the pages
	end(d)
}

// TestShadowOfHolding: a request whose hint is withheld is not held. Its record says that it would
// be, by the size and the speed that replicas tell themselves; its session is at work where it was
// served, and a next request of it is warm there.
func TestShadowOfHolding(t *testing.T) {
	r, all := telling(t, 2)
	shadow := func(p chained, served int) (Decision, *Record) {
		w := new(Work)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Withheld: true, MayHold: true}, w)
		if d.Held != nil || d.Reservation == nil {
			t.Fatalf("%+v", d)
		}
		r.decider.Served(&d, all[served].Addr)
		w.Record.Sessions(&d, sessions.Wait{})
		return d, &w.Record
	}
	var earlier []Decision
	for family, served := range []int{0, 0, 1} { // of 24,000 tokens that a cache has room for, a prompt has 12,800
		d, rec := shadow(prompt(family+1, 0, 800), served)
		earlier = append(earlier, d)
		if rec.Session == nil || rec.Session.Went || rec.Session.Turn != 1 {
			t.Fatalf("number %d: %+v", family, rec.Session)
		}
	}
	d, rec := shadow(prompt(7, 0, 800), 1)
	if seen, ok := r.decider.Working(index.Holder{Replica: all[1].Addr}); !ok || seen.Live != 2 || seen.Size != 24_000 {
		t.Errorf("at work there: %+v", seen)
	}
	if n := testutil.CollectAndCount(r.decider, "warmroute_live_sessions"); n != 2 || r.decider.unheld.Load() != 1 {
		t.Errorf("%d replicas have sessions; %d requests lacked room", n, r.decider.unheld.Load())
	}
	want := "would be held behind 0: its context of 12801 tokens did not fit beside 1 live sessions, "
	if rec.Explain(); !strings.Contains(rec.Why.Text, want) || rec.Session.Number != 4 || r.decider.WakeHeld() != 0 {
		t.Errorf("%q, want %q; %+v", rec.Why.Text, want, rec.Session)
	}
	for _, of := range all {
		if n := r.account(of.Addr).State(r.now.UnixNano()).InFlight; n != 0 {
			t.Errorf("%d requests are charged on %s", n, of.Addr)
		}
	}
	dry, rec := r.dry(prompt(8, 0, 800))
	if rec.Session == nil || !rec.Session.Went || dry.Reservation != nil {
		t.Errorf("a dry decision: %+v, %+v", rec.Session, dry)
	}
	for _, d := range append(earlier, d) {
		d.Reservation.Release()
	}
	if _, rec = r.dry(prompt(8, 0, 800)); rec.Session == nil {
		t.Error("sessions that were answered just now leave room")
	}
	r.stored(all[1].Addr, prompt(7, 0, 800))
	r.wait(time.Second)
	if _, rec = shadow(prompt(7, 0, 820), 1); rec.Session.Went || rec.Session.Number != 4 || rec.Session.Turn != 2 {
		t.Errorf("its next request: %+v", rec.Session)
	}
	if want := "turn 2 of a session, live, "; rec.Session.Context != 13_121 || !rec.Session.Working || !strings.Contains(explained(rec), want) {
		t.Errorf("%q, want %q; %+v", explained(rec), want, rec.Session)
	}
}

// explained returns why a decision was not warmer.
func explained(r *Record) string { r.Explain(); return r.Why.Text }

// TestSessionIsTold: an explanation tells what the session did before.
func TestSessionIsTold(t *testing.T) {
	for want, s := range map[string]*SessionRecord{
		"":                               nil,
		"turn 1 of a session, its first": {Number: 3, Turn: 1, Context: 9},
		"turn 2 of a session, live, 1.5 s after its last answer":            {Number: 3, Turn: 2, Working: true, Idle: 1500 * time.Millisecond},
		"turn 7 of a session, no longer live, 90.0 s after its last answer": {Number: 3, Turn: 7, Idle: 90 * time.Second},
		"turn 1 of a session, its first; held for 2.0 s behind 1":           {Number: 3, Turn: 1, Held: 2 * time.Second, Ahead: 1},
		"turn 1 of a session, its first; would be held behind 0":            {Number: 3, Turn: 1, Went: true},
		"held for 0.0 s behind 4":                                           {Ahead: 4},
	} {
		if got := s.say(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestShadowWithoutServed: a session whose hints are withheld counts where it would have been sent, as
// long as nobody tells where it was served; what failed is not cached there.
func TestShadowWithoutServed(t *testing.T) {
	for status, lacks := range map[int]bool{200: true, 503: false} {
		r, _ := telling(t, 1)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(1, 0, 800), Withheld: true}, new(Work))
		d.Reservation.Answered(status)
		d.Reservation.Release()
		d.Reservation.Release()
		if _, rec := r.dry(prompt(2, 0, 800)); (rec.Session != nil) != lacks {
			t.Errorf("status %d: the next one: %+v", status, rec.Session)
		}
	}
}

// TestServedElsewhere: a session is at work where its request was served, not where it was sent to.
func TestServedElsewhere(t *testing.T) {
	r, all := telling(t, 2)
	d, _ := r.ask(prompt(1, 0, 800))
	from, to := all[0].Addr, all[1].Addr
	if first(d) != from {
		from, to = to, from
	}
	r.decider.Served(&d, to)
	if d, _ := r.ask(prompt(2, 0, 800)); first(d) != from {
		t.Errorf("a second one goes to %s, where the first one is", first(d))
	}
	d = r.decider.Decide(&Ask{Model: "m", Prompts: prompt(3, 0, 100), Withheld: true}, new(Work))
	if from, to = all[0].Addr, all[1].Addr; first(d) != from {
		from, to = to, from
	}
	cache := r.decider.history.Of(index.Holder{Replica: from})
	before := cache.Weight(r.now)
	r.decider.Served(&d, to)
	d.Reservation.Release()
	if after := cache.Weight(r.now); after != before {
		t.Errorf("%g was sent to the replica that would have served, %g before", after, before)
	}
}

// TestAColdPromptGoesWhereItFits: to a replica with room for its context, although another one, which
// a session at work fills, has more of the prompt; the list goes on with that one. Without holding it
// goes where most of it is.
func TestAColdPromptGoesWhereItFits(t *testing.T) {
	const full, empty = "10.0.0.1:8000", "10.0.0.2:8000"
	for share, want := range map[float64]string{0: full + "," + empty, 1e-6: empty + "," + full} {
		all := caches(2, 1500)
		r := newRig(t, policy.Config{Sessions: policy.Sessions{Share: share}}, all...)
		to := func(addr string, p chained) *Reservation {
			d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Subset: []string{addr}}, new(Work))
			r.wait(time.Second)
			r.stored(addr, p)
			return d.Reservation
		}
		for i, rep := range all { // their speeds are known from then on
			to(rep.Addr, prompt(8+i, 0, 200)).Release()
		}
		r.wait(time.Hour)
		busy := to(full, prompt(1, 0, 800))
		p := prompt(1, 0, 300)
		p.blocks = append(p.blocks, prompt(2, 0, 500).blocks...)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: p, MayHold: true}, new(Work))
		if d.Chosen != want || d.Held != nil {
			t.Errorf("with a share of %g: %s, want %s", share, d.Chosen, want)
		}
		busy.Release()
	}
}

// TestOrderOfSites: the ranked candidates come first, then the others by cost, without those that a
// guard passes over or that answer nothing.
func TestOrderOfSites(t *testing.T) {
	w := Work{contest: contest{ranked: []int32{2}, answer: 5, scores: []policy.Score{{Cost: 3}, {Cost: 1, Verdict: policy.LoadGuarded}, {Cost: 0.5}, {Cost: 2}, {Cost: 4}, {Cost: 0.1}}}}
	if w.order(); !slices.Equal(w.sites, []int32{2, 3, 0, 4}) {
		t.Errorf("%v", w.sites)
	}
}

// TestWhoIsHeld: requests with one prompt that may be cached and that one replica computes, by tokens
// or text, where a share is set.
func TestWhoIsHeld(t *testing.T) {
	on := &policy.Settings{Sessions: policy.Sessions{Share: 0.1}}
	for name, c := range map[string]struct {
		ask  Ask
		set  *policy.Settings
		work Work
		want bool
	}{
		"tokens": {Ask{Prompts: prompt(1, 0, 1)}, on, Work{}, true}, "a text": {Ask{Text: prompt(1, 0, 1).keys()}, on, Work{}, true}, "neither": {Ask{}, on, Work{}, false},
		"off": {Ask{Prompts: prompt(1, 0, 1)}, new(policy.Settings), Work{}, false}, "not cached": {Ask{Prompts: prompt(1, 0, 1), Cacheless: true}, on, Work{}, false},
		"two may compute it": {Ask{Prompts: prompt(1, 0, 1)}, on, Work{parting: parting{apart: true}}, false},
	} {
		if got := c.ask.holds(c.set, &c.work); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRateOfASite: the tokens of prefill in a second by the learned speed, where it is known.
func TestRateOfASite(t *testing.T) {
	all := caches(1, 1500)
	r := newRig(t, policy.Config{}, all...)
	mv, _ := r.decider.Find("m", "")
	set, a := r.decider.Settings(mv), &Ask{Prompts: prompt(1, 0, 10)}
	for speed, want := range map[float64]float64{0: 0, 2: 1000 / (2 * set.TTFT.Prefill(1000, 0))} {
		w := &Work{contest: contest{at: []int32{0}, cands: []policy.Candidate{{Load: policy.Load{Speed: speed}}}}, lookup: lookup{keysOf: -1}}
		w.Record.Input.Input = 1000
		w.mark(a, mv, &mv.holders[0])
		if s := w.site(a, mv, set, 0); math.Abs(s.Rate-want) > 1e-6*want || s.Size != 1500*blockSize {
			t.Errorf("at speed %g: %+v, want a rate of %g", speed, s, want)
		}
	}
}
