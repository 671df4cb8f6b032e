package decision

import (
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
)

// refuser is a rig whose decisions' records are kept.
type refuser struct {
	*rig
	ring *Ring
}

func newRefuser(t *testing.T) *refuser {
	r := &refuser{newRig(t, policy.Config{}, decisiontest.Replica(1), decisiontest.Replica(2), decisiontest.Replica(3)), NewRing(64)}
	r.stored("10.0.0.1:8000", prompt(1, 0, 10))
	return r
}

// send decides about a request, which its replica, or another one, answers with a status.
func (r *refuser) send(a *Ask, by string, status int) (Decision, Record) {
	w := new(Work)
	d := r.decider.Decide(a, w)
	w.Record.ID = "id"
	if by == "" {
		by = first(d)
	}
	if d.Reservation != nil {
		d.Reservation.Release()
	}
	seq := r.ring.Put(&w.Record)
	w.Record.Explain()
	r.decider.Replied(r.ring, seq, "id", by, status)
	return d, w.Record
}

func asking(p chained) *Ask { return &Ask{Model: "m", Prompts: p, Rest: uint64(p.Tokens(0))} }

// grown is a prompt that goes on where that one ends.
func grown(p chained, own int) chained {
	return chained{blocks: append(slices.Clone(p.blocks), 777_000+own), extra: 1}
}

// TestRefusedPrompts: a prompt that a replica has refused goes elsewhere when it comes again, and
// so do a few that it goes on to. No other prompt does, and none where all have refused it.
func TestRefusedPrompts(t *testing.T) {
	const one, two = "10.0.0.1:8000", "10.0.0.2:8000"
	cold := grown(prompt(1, 0, 10), 1)
	otherEnd, tenant, text := asking(prompt(1, 0, 10)), asking(cold), &Ask{Model: "m", Text: prompt(1, 0, 10).keys(), TextTokens: 160, Rest: 9}
	otherEnd.Rest++
	tenant.Tenant = "b"
	for name, c := range map[string]struct {
		refused   *Ask
		statuses  []int
		then      *Ask
		elsewhere bool
	}{
		"the same":                     {asking(cold), []int{404}, asking(cold), true},
		"about who asked":              {asking(cold), []int{401, 403, 429, 401, 401, 401, 401}, asking(cold), false},
		"so are all requests":          {asking(cold), []int{401, 403, 429, 401, 401, 401, 401, 401}, asking(cold), true},
		"first about who asked":        {asking(cold), []int{401, 404, 401}, asking(cold), true},
		"then a bad request":           {asking(cold), []int{401, 400}, asking(cold), false},
		"the same, cached":             {asking(prompt(1, 0, 10)), []int{404}, asking(prompt(1, 0, 10)), true},
		"it goes on":                   {asking(cold), []int{404}, asking(grown(cold, 2)), true},
		"what it cannot do":            {asking(cold), []int{501}, asking(cold), true},
		"a redirect":                   {asking(cold), []int{307}, asking(cold), true},
		"a time limit of its own":      {asking(cold), []int{504}, asking(cold), true},
		"an odd status":                {asking(cold), []int{999}, asking(cold), false},
		"it goes on, and was cached":   {asking(prompt(1, 0, 10)), []int{404}, asking(cold), false},
		"the beginning":                {asking(cold), []int{404}, asking(prompt(1, 0, 10)), false},
		"another end":                  {asking(prompt(1, 0, 10)), []int{404}, otherEnd, false},
		"another tenant's":             {asking(cold), []int{404}, tenant, false},
		"a bad request":                {asking(cold), []int{400}, asking(cold), false},
		"a bad request, again":         {asking(cold), []int{400, 400}, asking(cold), true},
		"bad requests, served between": {asking(cold), []int{400, 200, 400}, asking(cold), false},
		"served meanwhile":             {asking(cold), []int{404, 200}, asking(cold), false},
		"no status":                    {asking(cold), []int{0}, asking(cold), false},
		"its own error":                {asking(cold), []int{503}, asking(cold), false},
		"an unknown end":               {&Ask{Model: "m", Prompts: cold}, []int{404}, &Ask{Model: "m", Prompts: cold}, false},
		"a text":                       {text, []int{404}, text, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefuser(t)
			for _, status := range c.statuses {
				r.send(c.refused, one, status)
			}
			d, rec := r.send(c.then, "", 0)
			passed := slices.ContainsFunc(rec.Candidates, func(c CandidateRecord) bool { return c.Replica == one && c.Score.Verdict == policy.Refused })
			if passed != c.elsewhere || strings.Contains(d.Chosen, one) == c.elsewhere {
				t.Errorf("passed over: %v; named %s, want elsewhere: %v", passed, d.Chosen, c.elsewhere)
			}
			if c.elsewhere && !strings.Contains(rec.Why.Text, "refused this prompt") && c.then != text {
				t.Errorf("explained as %q", rec.Why.Text)
			}
			r.send(c.then, two, 404)
			if d, _ := r.send(c.then, "10.0.0.3:8000", 404); c.elsewhere && first(d) != "10.0.0.3:8000" {
				t.Errorf("two have refused it; named %s", d.Chosen)
			}
			if d, _ := r.send(c.then, "", 0); c.elsewhere && c.then != text && len(c.then.Prompts.(chained).blocks) <= len(cold.blocks) && first(d) != one {
				t.Errorf("all have refused it, and the warm one is not named: %s", d.Chosen)
			}
		})
	}
}

// TestRefusalsEnd: a refusal counts for a time, which doubles, and sends few longer prompts
// elsewhere; the table is bounded.
func TestRefusalsEnd(t *testing.T) {
	const one = "10.0.0.1:8000"
	r, p := newRefuser(t), grown(prompt(1, 0, 10), 1)
	counts := func(a *Ask) bool {
		a.Dry = true
		d := r.decider.Decide(a, new(Work))
		a.Dry = false
		return first(d) != one
	}
	r.send(asking(p), one, 404)
	for i := range mostGrown {
		if d, _ := r.send(asking(grown(p, i)), "", 0); first(d) == one {
			t.Errorf("longer prompt %d goes to the replica", i)
		}
	}
	if d, _ := r.send(asking(grown(p, 99)), "", 0); first(d) != one {
		t.Error("one refusal sends every longer prompt elsewhere")
	}
	for _, lasts := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		r.wait(lasts - time.Second)
		before := counts(asking(p))
		r.wait(time.Second)
		if after := counts(asking(p)); !before || after {
			t.Errorf("a refusal that lasts %v: counts %v before its end, %v after it", lasts, before, after)
		}
		r.send(asking(p), one, 404)
	}
	r.decider.Replied(r.ring, r.ring.Put(&Record{Subject: Subject{ID: "id"}, promptMarks: promptMarks{end: promptEnd{rest: 5}}}), "other", one, 404)
	if slices.ContainsFunc(r.decider.refusals.all, func(of refusal) bool { return of.rest == 5 }) {
		t.Error("the refusal of another request is remembered")
	}
	for range refusingRow {
		r.send(asking(grown(p, 100)), one, 401)
	}
	before := counts(asking(grown(p, 100)))
	r.send(asking(prompt(1, 0, 5)), one, 200)
	if after := counts(asking(grown(p, 100))); !before || after {
		t.Errorf("a replica refuses all who ask: counts %v; it serves one: counts %v", before, after)
	}
	r.send(asking(grown(p, 101)), one, 404)
	before = counts(asking(grown(p, 101)))
	r.decider.Forget(one)
	if after := counts(asking(grown(p, 101))); !before || after {
		t.Errorf("counts %v before the replica leaves, %v after it", before, after)
	}
	for i := range 2 * mostRefused {
		r.send(asking(prompt(3, i, 2)), one, 404)
	}
	if n := len(r.decider.refusals.all); n != mostRefused || counts(asking(p)) {
		t.Errorf("%d refusals are kept; the oldest counts %v", n, counts(asking(p)))
	}
}

// TestRetypedPrompts: a conversation whose end is typed anew after a refusal goes elsewhere a few
// times, while its replica serves nothing. What shares its beginning alone is not affected.
func TestRetypedPrompts(t *testing.T) {
	const one = "10.0.0.1:8000"
	typed := func(own int) *Ask { return asking(grown(prompt(1, 0, 10), own)) }
	for name, c := range map[string]struct {
		then      func(r *refuser) *Ask
		elsewhere int
	}{
		"typed anew": {func(*refuser) *Ask { return typed(2) }, mostGrown},
		"cached beyond": {func(r *refuser) *Ask {
			r.stored(one, prompt(1, 0, 11))
			return asking(grown(prompt(1, 0, 11), 2))
		}, 0},
		"cached less far": {func(*refuser) *Ask { return asking(grown(prompt(1, 0, 9), 2)) }, 0},
		"another's is served": {func(r *refuser) *Ask {
			r.wait(time.Second)
			r.send(asking(prompt(2, 0, 5)), one, 200)
			return typed(2)
		}, 0},
		"refused elsewhere, too": {func(r *refuser) *Ask {
			r.send(typed(3), "", 403)
			r.send(typed(4), one, 401) // it counts no more than the first
			return typed(2)
		}, 0},
		"served elsewhere": {func(r *refuser) *Ask { r.send(typed(3), "", 200); return typed(2) }, mostGrown - 1},
		"long ago":         {func(r *refuser) *Ask { r.wait(refusalFirst); return typed(2) }, 0},
		"another tenant's": {func(*refuser) *Ask {
			a := typed(2)
			a.Tenant = "b"
			return a
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, elsewhere := newRefuser(t), 0
			r.send(typed(1), one, 404)
			a := c.then(r)
			for range 2 * mostGrown {
				if d, _ := r.send(a, "", 0); first(d) != one {
					elsewhere++
				}
			}
			if elsewhere != c.elsewhere {
				t.Errorf("%d of %d go elsewhere, want %d", elsewhere, 2*mostGrown, c.elsewhere)
			}
		})
	}
}

// TestIdleForRefusing: a replica that refuses everything at once gets no more new prompts than
// others for being idle, keeps those that it has cached, and is named while another one serves.
func TestIdleForRefusing(t *testing.T) {
	const one, two = "10.0.0.1:8000", "10.0.0.2:8000"
	r := newRefuser(t)
	busy := func() {
		for i := range 2 {
			w := new(Work)
			r.decider.Decide(&Ask{Model: "m", Subset: []string{"10.0.0.2", "10.0.0.3"}, Prompts: prompt(4, i, 200)}, w)
		}
	}
	busy()
	named := func() (n int) {
		for i := range 30 {
			d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(5, i, 40)}, new(Work))
			if d.Reservation.Release(); first(d) == one {
				n++
			}
		}
		return n
	}
	if n := named(); n != 30 {
		t.Fatalf("the idle replica is named %d times of 30", n)
	}
	snap := r.fleet.Snapshot()
	for range 2 * refusingRow {
		r.decider.Replied(r.ring, 0, "", one, 404) // of a request without a decision
	}
	for i := range refusingRow {
		if r.decider.Refusing(snap, snap.Replica(one)) != "" {
			t.Errorf("named after %d refusals", i)
		}
		r.send(asking(prompt(6, i, 3)), one, 401+3*(i%2))
	}
	if text := r.decider.Refusing(snap, snap.Replica(one)); text != "" {
		t.Errorf("named as %q where no other serves", text)
	}
	r.send(asking(prompt(7, 1, 3)), two, 200)
	if text := r.decider.Refusing(snap, snap.Replica(one)); text != "401 (4 times), 404 (4 times)" {
		t.Errorf("named as %q", text)
	}
	if n := named(); n > 20 {
		t.Errorf("it refuses everything, and is named %d times of 30", n)
	}
	if d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(1, 0, 10), Dry: true}, new(Work)); first(d) != one {
		t.Errorf("refusals of other prompts send a cached one to %s", d.Chosen)
	}
	r.send(asking(prompt(1, 0, 10)), one, 200)
	if text := r.decider.Refusing(snap, snap.Replica(one)); text != "" || named() != 30 {
		t.Errorf("it has served, and is named as %q, %d times of 30", text, named())
	}
}

// TestRepliesInARow: eight refusals in a row make a refuser, for ten minutes after the last; one answer
// that serves ends that.
func TestRepliesInARow(t *testing.T) {
	const at = int64(1e18)
	r := new(replies)
	for n := range refusingRow {
		if r.refusing(at) {
			t.Errorf("after %d refusals", n)
		}
		r.add(firstStatus+n, at)
	}
	if !r.refusing(at) || !r.refusing(at+int64(refusingFor)-1) || r.refusing(at+int64(refusingFor)) {
		t.Error("eight refusals do not count for ten minutes")
	}
	if r.statuses[0].Load() != 1 || r.statuses[refusingRow-1].Load() != 1 {
		t.Error("they are not counted by status")
	}
	if r.add(firstStatus-1, at+1); r.refusing(at+1) || r.statuses[0].Load() != 0 || r.served.Load() != at+1 {
		t.Error("an answer that serves changes nothing")
	}
}

// TestRefusersLookAsLoadedAsTheOthers: with the mean of those that serve, requests rounded up, unless
// they have more; where all refuse, each has its own.
func TestRefusersLookAsLoadedAsTheOthers(t *testing.T) {
	const at = int64(1e18)
	mv, w := new(View), new(Work)
	own := []policy.Load{{InFlight: 1, Pending: 0.5, Live: 50}, {InFlight: 3, Pending: 1.5, Live: 100}, {InFlight: 2, Pending: 4, Live: 300}, {InFlight: 5, Pending: 0.25, Live: 1000}}
	for i := range own {
		mv.holders = append(mv.holders, holder{heard: heard{replies: new(replies)}})
		w.at = append(w.at, int32(i))
	}
	look := func() (loads []policy.Load) {
		w.cands = w.cands[:0]
		for i := range own {
			w.cands = append(w.cands, policy.Candidate{Load: own[i]})
		}
		w.level(mv, at)
		for i := range w.cands {
			loads = append(loads, w.cands[i].Load)
		}
		return loads
	}
	refuse := func(i int) {
		for range refusingRow {
			mv.holders[i].replies.add(429, at)
		}
	}
	if got := look(); !slices.Equal(got, own) {
		t.Errorf("nobody refuses: %+v", got)
	}
	refuse(0)
	refuse(3)
	want := []policy.Load{{InFlight: 3, Pending: 2.75, Live: 200}, own[1], own[2], {InFlight: 5, Pending: 2.75, Live: 1000}}
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("two refuse: %+v, want %+v", got, want)
	}
	refuse(1)
	refuse(2)
	if got := look(); !slices.Equal(got, own) {
		t.Errorf("all refuse: %+v", got)
	}
}

// TestPromptsOfClientsThatLeftAreInNoHistory: where the client left without an answer before the first
// token was to come; later the prompt may be computed.
func TestPromptsOfClientsThatLeftAreInNoHistory(t *testing.T) {
	p := prompt(1, 0, long)
	for _, share := range []float64{0.01, 0.9, 1.1} {
		r := &refuser{newRig(t, policy.Config{}, silent(1)...), NewRing(64)}
		w := new(Work)
		d := r.decider.Decide(asking(p), w)
		w.Record.ID = "id"
		seq := r.ring.Put(&w.Record)
		after := time.Duration(share * float64(d.Reservation.own.Terms().Wait))
		if after == 0 {
			t.Fatal("no first token is expected")
		}
		r.wait(time.Minute)
		d.Reservation.Release()
		r.decider.GaveUp(r.ring, seq, "id", after)
		_, rec := r.dry(p)
		if got := candidate(t, rec, firstAddr).Match.Matched() / blockSize; (got > 0) != (share > 1) {
			t.Errorf("after %v of the wait the history has %d blocks", share, got)
		}
	}
}

// TestRefusedPromptsAreInNoHistory: where only the access log tells that a prompt was refused, by
// its replica or by a filter behind the router, the history that had it forgets what was new, unless
// another request has used it.
func TestRefusedPromptsAreInNoHistory(t *testing.T) {
	p, q := prompt(1, 0, long), prompt(1, 1, long)
	for name, c := range map[string]struct {
		by     string
		status int
		before []chained // computed there
		after  []chained // sent there before the status is known
		want   int
	}{
		"by a filter":           {"", 403, nil, nil, 0},
		"by the replica":        {firstAddr, 429, nil, nil, 0},
		"not reached":           {"", 503, nil, nil, 0},
		"redirected":            {firstAddr, 307, nil, nil, 0},
		"what it had stays":     {firstAddr, 400, []chained{prompt(1, 0, short)}, nil, short},
		"it had all":            {"", 403, []chained{p}, nil, long},
		"sent again":            {"", 403, nil, []chained{p}, long},
		"sent again, with more": {"", 403, nil, []chained{grown(p, 3)}, long},
		"served":                {firstAddr, 200, nil, nil, long},
		"nobody knows":          {"", 0, nil, nil, long},
		"another beside it":     {"", 403, []chained{q}, nil, 0},
	} {
		r := &refuser{newRig(t, policy.Config{}, silent(1)...), NewRing(64)}
		for _, b := range c.before {
			r.on(firstAddr, b)
		}
		w := new(Work)
		d := r.decider.Decide(asking(p), w)
		w.Record.ID = "id"
		seq := r.ring.Put(&w.Record)
		r.wait(time.Minute) // no early end shows the refusal
		d.Reservation.Release()
		for _, a := range c.after {
			r.on(firstAddr, a)
		}
		r.decider.Replied(r.ring, seq, "id", c.by, c.status)
		r.decider.Replied(r.ring, seq, "id", c.by, c.status)
		_, rec := r.dry(p)
		if got := candidate(t, rec, firstAddr).Match.Matched(); got != c.want*blockSize {
			t.Errorf("%s: the history has %d blocks, want %d", name, got/blockSize, c.want)
		}
	}
}
