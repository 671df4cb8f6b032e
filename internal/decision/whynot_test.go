package decision

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/decision/why"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

const one = "10.0.0.1:8000"

// explainOf explains a request's decision.
func (r *rig) explainOf(a *Ask) Record {
	r.t.Helper()
	w := new(Work)
	a.Dry = true
	a.Model = "m"
	d := r.decider.Decide(a, w)
	rec := w.Record
	rec.At, rec.Reason = r.now, d.Reason
	rec.Explain()
	return rec
}

// apply has a replica publish events.
func (r *rig) apply(events ...index.Event) {
	r.t.Helper()
	must.Get(r.index.Apply(&index.Batch{Holder: index.Holder{Replica: one}, Incarnation: r.publishers[one].life, Events: events}))(r.t)
}

func (p chained) removed(from int) index.Event {
	e := index.Event{Kind: index.Removed}
	for _, b := range p.blocks[from:] {
		e.Hashes = append(e.Hashes, uint64(b))
	}
	return e
}

// hybrid has a replica publish a prompt's blocks in a group of full attention, and the
// first ones in a group of windows, which is group 0.
func (r *rig) hybrid(p chained, windows int) {
	full, window := r.event(p), r.event(chained{blocks: p.blocks[:windows]})
	full.Spec, full.Tokens, full.Scope.Group = "full_attention", len(full.Hashes)*blockSize, 1
	window.Spec, window.Tokens, window.Window = "sliding_window", len(window.Hashes)*blockSize, 2*blockSize
	r.apply(full, window)
}

// twoPrompts are a prompt twice.
type twoPrompts struct{ chained }

func (twoPrompts) Len() int { return 2 }

// later takes the decision for a request, has the replica store the prompt and remove it, and returns
// the end of its match as the record of the decision tells it then.
func (r *rig) later(a *Ask, p chained) why.End {
	r.t.Helper()
	w, ring, real := new(Work), NewRing(1), *a
	real.Dry = false
	d := r.decider.Decide(&real, w)
	if a.Text != nil {
		w.Record.Source = "text"
	}
	w.Record.At, w.Record.Reason = r.now, d.Reason
	ring.Put(&w.Record)
	r.wait(time.Minute)
	e := r.event(p)
	if _, err := r.index.Apply(&index.Batch{Holder: index.Holder{Replica: one}, Incarnation: r.publishers[one].life, Events: []index.Event{e, p.removed(0)}}); err != nil && !errors.Is(err, index.ErrIncarnation) {
		r.t.Fatal(err)
	}
	rec := ring.Last(1, nil)[0]
	r.decider.ExplainRecord(&rec)
	if len(rec.Candidates) == 0 || rec.Candidates[0].Why == nil {
		r.t.Fatalf("%+v", rec)
	}
	return *rec.Candidates[0].Why
}

// recorded returns the cause that a record tells where the body tells another one: keys alone do
// not show other prompts' blocks, nor what cache groups allow.
func recorded(c why.Cause) why.Cause {
	switch c {
	case why.Diverges:
		return why.NeverStored
	case why.Group:
		return why.NotKept
	}
	return c
}

// TestEveryCause makes each cause happen: the candidate's line has it, with its numbers, and
// the time where there is one.
func TestEveryCause(t *testing.T) {
	p := prompt(1, 0, 10)
	p.extra = 5
	other := chained{blocks: append(slices.Clone(p.blocks[:6]), 77, 78), extra: 1}
	for _, c := range []struct {
		cause why.Cause
		do    func(r *rig, a *Ask)
		line  string
	}{
		{why.NeverStored, func(*rig, *Ask) {}, "has nothing of it; it has not stored the first block since it is followed, at 2023-11-14 22:13:20 UTC (1m0s before)"},
		{why.Whole, func(r *rig, _ *Ask) { r.stored(one, p) }, "has the whole prompt but its last 5 tokens"},
		{why.Diverges, func(r *rig, _ *Ask) { r.stored(one, other) }, "has 96 tokens; other prompts go on there, this one differs from them within the next 16 tokens"},
		{why.Evicted, func(r *rig, _ *Ask) { r.stored(one, p); r.apply(p.removed(4)) }, "has 64 tokens; the next block was evicted at 2023-11-14 22:13:20 UTC (1m0s before)"},
		{why.Cleared, func(r *rig, _ *Ask) { r.stored(one, p); r.apply(index.Event{Kind: index.Cleared}) }, "has nothing of it; its cache was cleared at 2023-11-14 22:13:20 UTC (1m0s before), and the first block has not been stored since"},
		{why.Restarted, func(r *rig, _ *Ask) {
			r.stored(one, p)
			r.publishers[one].life = r.index.Begin(index.Holder{Replica: one})
			r.index.Lose(index.Holder{Replica: one}, index.LossRestarted)
			r.stored(one, chained{blocks: p.blocks[:2]})
		}, "has 32 tokens; it restarted at 2023-11-14 22:13:20 UTC (1m0s before), and the next block has not been stored since"},
		{why.EventsLost, func(r *rig, _ *Ask) {
			r.index.Begin(index.Holder{Replica: one})
			r.index.Lose(index.Holder{Replica: one}, index.LossEvents)
		}, "has nothing of it; all known blocks were dropped at 2023-11-14 22:13:20 UTC (1m0s before), because events were lost or their reporter began again, and the first block has not been reported since"},
		{why.InFlight, func(r *rig, _ *Ask) {
			r.stored(one, chained{blocks: p.blocks[:3]})
			r.coming(one, blockSize, p.keys())
		}, "has 48 tokens; a request in flight will leave 80 tokens more, their event has not come"},
		{why.Doubted, func(r *rig, _ *Ask) {
			r.stored(one, p)
			r.explainOf(&Ask{Prompts: p})
			r.ledger.Doubt(func(string) bool { return true })
		}, "counts as holding nothing: it did not hit what its events promised"},
		{why.TooShort, func(_ *rig, a *Ask) { a.Prompts = chained{extra: 9} }, "cannot have any of it: the prompt has no full block of 16 tokens before its last token"},
		{why.Cacheless, func(_ *rig, a *Ask) { a.Cacheless = true }, "reads no cache for this request"},
		{why.Several, func(_ *rig, a *Ask) { a.Prompts = twoPrompts{p} }, "has 0 tokens of all prompts together; blocks are explained for one prompt alone"},
		{why.ByText, func(_ *rig, a *Ask) { a.Prompts, a.Text, a.TextTokens = nil, p.keys(), 99 }, "has nothing of it, by the texts that were sent there"},
		{why.NoEvents, func(r *rig, _ *Ask) {
			silent, other := decisiontest.Replica(1), decisiontest.Replica(2)
			silent.Events = nil
			r.fleet.Set(silent, other)
		}, "has nothing of it, by the token ids that were sent there: no KV events and no sidecar report its blocks"},
		{why.CacheOff, func(r *rig, _ *Ask) {
			off := decisiontest.Replica(1)
			off.CacheOff = true
			r.fleet.Set(off)
		}, "has nothing of it: its prefix caching is off"},
		{why.Group, func(r *rig, _ *Ask) { r.hybrid(p, 3) }, "has 48 tokens that all cache groups allow; full attention has 160, but its sliding window group ends the hit"},
		{why.NoGroup, func(r *rig, _ *Ask) {
			a, b := r.event(p), r.event(p)
			b.Scope.Group = index.MaxGroups
			r.apply(a, b)
		}, "counts as holding nothing: its events do not name the kinds of its cache groups, or name one that is not known here"},
	} {
		t.Run(string(c.cause), func(t *testing.T) {
			r := newRig(t, policy.Config{}, decisiontest.Replica(1))
			a := &Ask{Prompts: p}
			c.do(r, a)
			r.wait(time.Minute)
			rec := r.explainOf(a)
			if len(rec.Candidates) == 0 || rec.Candidates[0].Why == nil {
				t.Fatalf("%s: %+v", rec.Reason, rec.Candidates)
			}
			if end := rec.Candidates[0].Why; end.Cause != c.cause || end.Text != c.line {
				t.Errorf("%s: %s\nwant %s: %s", end.Cause, end.Text, c.cause, c.line)
			}
			if late := r.later(a, p); late.Cause != recorded(c.cause) || late.Cause == c.cause && !strings.HasPrefix(strings.ReplaceAll(late.Text, "2m0s", "1m0s"), strings.TrimSuffix(c.line, " and the next block has not been stored since")) {
				t.Errorf("as a record: %s: %s\nwant %s: %s", late.Cause, late.Text, recorded(c.cause), c.line)
			}
			if c.cause.Do() == "" || rec.Why.Text == "" || rec.Why.Do == "" {
				t.Errorf("nothing to do, or no line: %+v", rec.Why)
			}
		})
	}
}

// byScope is a prompt whose keys are as many as it has full blocks of a scope.
type byScope struct{ chained }

func (p byScope) AppendKeys(dst []prefixhash.Key, s *index.Scope, _ int) []prefixhash.Key {
	return append(dst, p.keys()[:p.Tokens(0)/s.BlockSize]...)
}

// TestWholeMatchesOfTwoBlockSizes: a record calls a match whole, and a prompt too short, by the
// blocks of each candidate.
func TestWholeMatchesOfTwoBlockSizes(t *testing.T) {
	for blocks, want := range map[int][2]why.Cause{12: {why.Whole, why.Whole}, 13: {why.Whole, why.Whole}, 1: {why.TooShort, why.Whole}} {
		first, second := decisiontest.Replica(1), decisiontest.Replica(2)
		first.BlockSize = 2 * blockSize
		r := newRig(t, policy.Config{}, first, second)
		p := byScope{prompt(1, 0, blocks)}
		for _, c := range []*fleet.Replica{first, second} {
			e := r.event(p.chained)
			n := p.Tokens(0) / c.BlockSize
			e.Scope.BlockSize, e.Hashes, e.Content = c.BlockSize, e.Hashes[:n], e.Content[:n]
			b := index.Batch{Holder: index.Holder{Replica: c.Addr}, Incarnation: r.publishers[c.Addr].life, Events: []index.Event{e}}
			must.Get(r.index.Apply(&b))(t)
		}
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Prompts: p, Must: true}, w)
		w.Record.Explain()
		for _, c := range w.Record.Candidates {
			of := want[1]
			if c.Replica == first.Addr {
				of = want[0]
			}
			if c.Why.Cause != of {
				t.Errorf("%d blocks: %s has %d tokens and ends by %s, want %s", blocks, c.Replica, c.State.Match.Cached(), c.Why.Cause, of)
			}
		}
	}
}

// TestEveryDecisionKeepsWhatCandidatesLack: a record tells what ends the match of each of its
// candidates, in blocks of whichever size and files, also where none gets the request. When what
// was known then is lost, it says that it cannot tell.
func TestEveryDecisionKeepsWhatCandidatesLack(t *testing.T) {
	p := variant{chained: prompt(1, 0, 12)}
	for name, differs := range map[string]func(first *fleet.Replica, set *policy.Config){
		"alike":       func(*fleet.Replica, *policy.Config) {},
		"blocks":      func(first *fleet.Replica, _ *policy.Config) { first.BlockSize = 2 * blockSize },
		"files":       func(first *fleet.Replica, _ *policy.Config) { first.Models[0].LoRA.Path = "/other" },
		"passed over": func(first *fleet.Replica, _ *policy.Config) { first.Models[0].MaxLen = 10 },
		"no hint":     func(_ *fleet.Replica, set *policy.Config) { set.HintWhenCold = new(bool) },
	} {
		var replicas []*fleet.Replica
		for i := range 3 {
			c := decisiontest.Replica(i + 1)
			c.Models[0].LoRA = prefixhash.LoRA{Name: "sql", Path: "/a", Set: true}
			replicas = append(replicas, c)
		}
		var set policy.Config
		differs(replicas[0], &set)
		r := newRig(t, set, replicas...)
		for i, c := range replicas {
			e := r.event(p.chained)
			e.Scope.LoRA, e.Scope.BlockSize = c.Models[0].LoRA, c.BlockSize
			for k := range e.Hashes {
				e.Hashes[k] += uint64(i) << 40
			}
			b := index.Batch{Holder: index.Holder{Replica: c.Addr}, Incarnation: r.publishers[c.Addr].life, Events: []index.Event{e, {Kind: index.Removed, Hashes: e.Hashes}}}
			must.Get(r.index.Apply(&b))(t)
		}
		w := new(Work)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Least: 100}, w)
		w.Record.At, w.Record.Reason = r.now, d.Reason
		r.decider.ExplainRecord(&w.Record)
		if len(w.Record.Candidates) != len(replicas) {
			t.Errorf("%s: %s, and the record has %d candidates", name, d.Reason, len(w.Record.Candidates))
		}
		for _, c := range w.Record.Candidates {
			if c.Why == nil || c.Why.Cause != why.Evicted {
				t.Errorf("%s: %s: %s ends by %+v, want %s", name, d.Reason, c.Replica, c.Why, why.Evicted)
			}
		}
		r.wait(time.Minute)
		last := &w.Record.Candidates[len(w.Record.Candidates)-1]
		r.index.Begin(index.Holder{Replica: last.Replica})
		r.index.Lose(index.Holder{Replica: last.Replica}, index.LossEvents)
		last.Why = nil
		if r.decider.ExplainRecord(&w.Record); last.Why.Cause != why.NotKept {
			t.Errorf("%s: after a loss %s ends by %+v, want %s", name, last.Replica, last.Why, why.NotKept)
		}
	}
}

// TestCausesInCachesOfSeveralGroups: what full attention lacks is found in its group, whatever
// its number; copies below the GPU and blocks that a draft model drops are told.
func TestCausesInCachesOfSeveralGroups(t *testing.T) {
	p := prompt(1, 0, 10)
	for _, c := range []struct {
		cause why.Cause
		do    func(r *rig)
		line  string
	}{
		{why.Whole, func(r *rig) { r.hybrid(p, 10) }, "has the whole prompt but its last 1 token"},
		{why.Evicted, func(r *rig) {
			r.hybrid(p, 10)
			e := p.removed(7)
			e.Scope.Group = 1
			r.apply(e)
		}, "has 112 tokens; the next block was evicted at 2023-11-14 22:13:20 UTC (just now)"},
		{why.Diverges, func(r *rig) { q := chained{blocks: append(slices.Clone(p.blocks[:5]), 77, 78)}; r.hybrid(q, 7) }, "has 80 tokens; other prompts go on there, this one differs from them within the next 16 tokens"},
		{why.NeverStored, func(r *rig) {
			below := r.event(p)
			below.Tier = index.TierCPU
			r.stored(one, chained{blocks: p.blocks[:4]})
			r.apply(below)
		}, "has 64 tokens; it has not stored the next block since it is followed, at 2023-11-14 22:13:20 UTC (just now); 96 tokens more are in CPU memory or storage"},
		{why.Whole, func(r *rig) {
			r.index.SetGroups(one, &index.GroupSettings{Eagle: 1, EagleKnown: true})
			e := r.event(p)
			e.Spec, e.Tokens = "full_attention", 10*blockSize
			r.apply(e)
		}, "has the whole prompt but its last 17 tokens; 16 tokens more are cached, but computed again for a draft model"},
	} {
		r := newRig(t, policy.Config{}, decisiontest.Replica(1))
		c.do(r)
		if end := r.explainOf(&Ask{Prompts: p}).Candidates[0].Why; end.Cause != c.cause || end.Text != c.line {
			t.Errorf("%s: %s\nwant %s: %s", end.Cause, end.Text, c.cause, c.line)
		}
	}
}

// TestTheIndexIsFullIsACause: blocks that the index dropped itself.
func TestTheIndexIsFullIsACause(t *testing.T) {
	r := newRig(t, policy.Config{}, decisiontest.Replica(1))
	small := index.New(index.Options{MaxScopeBlocks: 40})
	t.Cleanup(func() { small.Close() })
	r.index, r.decider.index, r.decider.views.index = small, small, small
	r.publishers[one].life = small.Begin(index.Holder{Replica: one})
	for i := range 30 {
		r.stored(one, prompt(2, i, 2))
	}
	if rec := r.explainOf(&Ask{Prompts: prompt(1, 0, 10)}); rec.Candidates[0].Why.Cause != why.IndexFull {
		t.Errorf("%+v", rec.Candidates[0].Why)
	}
}

// variant is a prompt whose keys are of the scope, and of the salt.
type variant struct {
	chained
	salted bool
}

func (p variant) AppendKeys(dst []prefixhash.Key, s *index.Scope, _ int) []prefixhash.Key {
	parent := prefixhash.TokenRoot(s.Model, s.LoRA)
	for i, b := range p.blocks {
		c := prefixhash.Content(b)
		if p.salted && i == 0 {
			c++
		}
		parent = prefixhash.Link(parent, c)
		dst = append(dst, parent)
	}
	return dst
}

// TestMoreElsewhere: what is cached without the salt, under other adapters, under models of
// the same files and beyond the subset is told, the most first; what other tenants and
// models of other files have is not.
func TestMoreElsewhere(t *testing.T) {
	sql := prefixhash.LoRA{Set: true, Name: "sql"}
	base := decisiontest.Replica(1)
	base.Models = []fleet.Model{{ID: "also", Base: "m", Root: "/m"}, {ID: "m", Base: "m", Root: "/m"}, {ID: "sql", Base: "m", Root: "/m", LoRA: sql}}
	copied, foreign, secret := decisiontest.Replica(2), decisiontest.Replica(3), decisiontest.Replica(4)
	copied.Models = []fleet.Model{{ID: "copy", Base: "copy", Root: "/m"}}
	foreign.Models = []fleet.Model{{ID: "far", Base: "far", Root: "/far"}}
	secret.Tenant, secret.Models = "rival", []fleet.Model{{ID: "mine", Base: "mine", Root: "/m"}}
	beyond := decisiontest.Replica(5)
	beyond.Models = base.Models
	r := newRig(t, policy.Config{}, base, copied, foreign, secret, beyond)
	p := prompt(1, 0, 20)
	store := func(addr string, s index.Scope, v variant, n int) {
		t.Helper()
		v.blocks = v.blocks[:n]
		e := r.event(v.chained)
		if s.Scheme, s.BlockSize = index.SchemeTokens, blockSize; v.salted {
			e.Content[0]++
		}
		for i := range e.Hashes {
			e.Hashes[i] += uint64(len(s.Model)+len(s.LoRA.Name)) << 40
			if v.salted {
				e.Hashes[i] += 1 << 50
			}
		}
		e.Scope = s
		must.Get(r.index.Apply(&index.Batch{Holder: index.Holder{Replica: addr}, Incarnation: r.publishers[addr].life, Events: []index.Event{e}}))(t)
	}
	salted := variant{p, true}
	store(one, index.Scope{Model: "m"}, salted, 2)
	store(one, index.Scope{Model: "m"}, variant{p, false}, 10)
	store(one, index.Scope{Model: "m", LoRA: sql}, salted, 12)
	store(copied.Addr, index.Scope{Model: "copy"}, salted, 14)
	store(foreign.Addr, index.Scope{Model: "far"}, salted, 20)
	store(secret.Addr, index.Scope{Model: "mine", Tenant: "rival"}, salted, 20)
	store(beyond.Addr, index.Scope{Model: "m"}, salted, 5)
	rekey := func(_ *View, keep bool) Prompts { return variant{p, keep} }
	rec := r.explainOf(&Ask{Prompts: salted, Rekey: rekey, Subset: []string{one}})
	want := []why.Elsewhere{
		{Place: why.OtherModel, Model: "copy", More: 12 * blockSize}, {Place: why.OtherAdapter, Model: "sql", More: 10 * blockSize},
		{Place: why.Unsalted, More: 8 * blockSize}, {Place: why.BeyondSubset, More: 3 * blockSize},
	}
	if !slices.Equal(rec.Why.Elsewhere, want) {
		t.Errorf("%+v\nwant %+v", rec.Why.Elsewhere, want)
	}
	const line = `no candidate has more than the chosen one; 192 tokens more under the model "copy", loaded from the same files; ` +
		`160 tokens more under "sql", the same model with another adapter or none; 128 tokens more without the cache_salt; 48 tokens more on a replica outside the gateway's subset`
	if rec.Why.Text != line {
		t.Errorf("%s\nwant %s", rec.Why.Text, line)
	}
	for _, m := range r.decider.related(r.decider.views.of("m", ""), "") {
		if m.ID == "mine" || m.ID == "far" {
			t.Errorf("%s is looked at", m.ID)
		}
	}
	rec = r.explainOf(&Ask{Prompts: salted, Rekey: rekey, Tenant: "rival"})
	if i := slices.IndexFunc(rec.Why.Elsewhere, func(e why.Elsewhere) bool { return e.Model == "mine" }); i < 0 {
		t.Errorf("the tenant itself is not told: %+v", rec.Why.Elsewhere)
	}
	if rec = r.explainOf(&Ask{Prompts: salted}); len(rec.Why.Elsewhere) > 0 {
		t.Errorf("without other keys: %+v", rec.Why.Elsewhere)
	}
}

// TestTheGroupThatCuts: of several groups that hit less than full attention, the kind of the
// one that ends the hit is told.
func TestTheGroupThatCuts(t *testing.T) {
	g := index.Groups{Hit: 16, FullOnly: 64, Specs: []index.GroupHeld{{Kind: "full", Alone: 64}, {Kind: "window", Alone: 32}, {Kind: "mamba", Alone: 16, Cuts: true}}}
	if got := cutBy(&g); got != "mamba" {
		t.Errorf("%q", got)
	}
	if g.Hit = 64; cutBy(&g) != "" || cutBy(nil) != "" {
		t.Error("a group cuts a hit that full attention ends")
	}
}

// TestFewModelsAreTried: of very many adapters, some are tried, and the others counted.
func TestFewModelsAreTried(t *testing.T) {
	many := decisiontest.Replica(1)
	for i := range 50 {
		name := "a" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		many.Models = append(many.Models, fleet.Model{ID: name, Base: "m", LoRA: prefixhash.LoRA{Set: true, Name: name}})
	}
	slices.SortFunc(many.Models, func(a, b fleet.Model) int { return strings.Compare(a.ID, b.ID) })
	r := newRig(t, policy.Config{}, many)
	tried := 0
	a := &Ask{Prompts: variant{chained: prompt(1, 0, 4)}, Rekey: func(_ *View, salted bool) Prompts {
		if tried++; !salted {
			return nil
		}
		return variant{chained: prompt(1, 0, 4)}
	}}
	rec := r.explainOf(a)
	if tried != 1+maxElsewhere || rec.Why.Untried != 50-maxElsewhere || !strings.Contains(rec.Why.Text, "34 further adapters and models were not tried") {
		t.Errorf("%d tried, %+v", tried, rec.Why)
	}
	a.Ended = func() bool { return tried >= 20 }
	if rec := r.explainOf(a); rec.Why.Untried <= 34 {
		t.Errorf("with the time over: %d not tried", rec.Why.Untried)
	}
}

// TestTheLineComparesTheChosen with the candidate that has most.
func TestTheLineComparesTheChosen(t *testing.T) {
	cand := func(replica string, matched int, v policy.Verdict, failing bool) CandidateRecord {
		return CandidateRecord{Replica: replica, State: policy.Candidate{Match: policy.Match{policy.GPU: {Tokens: int32(matched), Credit: 1, Source: policy.Reported}}, Load: policy.Load{Failing: failing}}, Score: policy.Score{Cost: 0.25, Verdict: v}}
	}
	full := cand("b", 96, policy.Ranked, false)
	busy := full
	busy.State.Recent = 2
	with := func(c CandidateRecord, change func(*policy.Candidate)) CandidateRecord {
		change(&c.State)
		return c
	}
	rank := func(n int, cost float64, v policy.Verdict) CandidateRecord {
		c := cand("a", 16, v, false)
		c.Rank, c.Score.Cost = n, cost
		return c
	}
	moved := func(block, input int, candidates ...CandidateRecord) Record {
		return Record{Reason: ReasonMoved, Choice: Choice{Chosen: "a"}, Prompted: Prompted{Block: block}, Input: policy.Request{Input: input}, Candidates: candidates}
	}
	chosen := cand("a", 16, policy.Ranked, false)
	const more, costs = "b has 80 tokens more than the chosen one, but ", "it costs more (0.2500 s, the chosen one 0.2500 s)"
	for _, c := range []struct {
		rec  Record
		want string
	}{
		{Record{Candidates: []CandidateRecord{cand("a", 96, policy.Ranked, false), full}}, "no replica was chosen; a has most, 96 tokens"},
		{moved(0, 0, rank(0, 0.3, policy.Ranked), rank(1, 0.5, policy.Ranked), full), more + "it costs more (0.2500 s, the chosen one 0.3000 s)"},
		{moved(0, 0, rank(0, 0.5, policy.Ranked), rank(1, 0.3, policy.Ranked), rank(2, 0.1, policy.LoadGuarded), full), more + "it costs more (0.2500 s, the chosen one 0.3000 s)"},
		{moved(0, 0, chosen, with(full, func(c *policy.Candidate) { c.Room, c.Pending = 2, 1 })), more + "answers that run leave it no room for the request for about 2.000 s (cost 0.2500 s, the chosen one 0.2500 s)"},
		{moved(0, 0, chosen, with(full, func(c *policy.Candidate) { c.Room, c.Pending, c.Foreign = 2, 1.5, 0.5 })), more + costs},
		{moved(0, 0, with(chosen, func(c *policy.Candidate) { c.Room = 2 }), with(full, func(c *policy.Candidate) { c.Room = 2 })), more + costs},
		{moved(16, 0, chosen, with(full, func(c *policy.Candidate) { c.Match[policy.GPU].Credit = 80. / 96 })), more + "is expected to keep 80 of its 96 tokens until it computes the request (cost 0.2500 s, the chosen one 0.2500 s)"},
		{moved(16, 128, with(chosen, func(c *policy.Candidate) { c.Space = 1. / 7 }), with(full, func(c *policy.Candidate) { c.Space = 1 })), more + "would evict 16 tokens more that are likely to be used again (cost 0.2500 s, the chosen one 0.2500 s)"},
		{moved(17, 128, with(chosen, func(c *policy.Candidate) { c.Space = 1. / 7 }), with(full, func(c *policy.Candidate) { c.Space = 1 })), more + costs},
		{Record{Reason: ReasonWarm, Choice: Choice{Chosen: "b,a"}, Candidates: []CandidateRecord{cand("a", 96, policy.Ranked, false), full}}, "no candidate has more than the chosen one"},
		{Record{Reason: ReasonMoved, Choice: Choice{Chosen: "a"}, Candidates: []CandidateRecord{cand("a", 16, policy.Ranked, false), full}}, "b has 80 tokens more than the chosen one, but it costs more (0.2500 s, the chosen one 0.2500 s)"},
		{Record{Reason: ReasonMoved, Choice: Choice{Chosen: "a"}, Candidates: []CandidateRecord{cand("a", 16, policy.Ranked, false), busy}}, "b has 80 tokens more than the chosen one, but it costs more (0.2500 s, the chosen one 0.2500 s), also since it was sent more lately (2.0 s of prefill, the chosen one 0.0 s)"},
		{Record{Reason: ReasonGuarded, Choice: Choice{Chosen: "a"}, Candidates: []CandidateRecord{cand("a", 0, policy.Ranked, false), cand("b", 96, policy.LoadGuarded, false)}}, "b has 96 tokens more than the chosen one, but it has too many requests in flight"},
		{Record{Reason: ReasonGuarded, Choice: Choice{Chosen: "a"}, Candidates: []CandidateRecord{cand("a", 0, policy.Ranked, false), cand("b", 96, policy.Failing, true)}}, "b has 96 tokens more than the chosen one, but it is failing"},
		{Record{Reason: ReasonSaturated, Candidates: []CandidateRecord{cand("a", 0, policy.Ranked, false), full}}, "no replica was chosen; b has most, 96 tokens"},
		{Record{Reason: ReasonCold, Choice: Choice{Chosen: "a"}, Prompted: Prompted{Prompts: 1, Block: 16, Blocks: 4}, Candidates: []CandidateRecord{cand("a", 0, policy.Ranked, false)}}, "no candidate has any of the prompt (not_kept 1)"},
		{Record{Reason: ReasonBudget}, "the decision ended before replicas were compared"},
		{Record{Reason: ReasonUnknownModel, Asked: "gpt", Why: &why.Answer{Served: []string{"a", "b"}}}, `no replica serves or served "gpt"; served are a, b`},
		{Record{Reason: ReasonUnknownModel, Asked: "gpt", Why: &why.Answer{Served: []string{"a"}, NotReady: []why.Replica{{Addr: "x", Why: "unreachable"}}}}, `no replica serves or served "gpt"; served are a; not known is what these serve; x: unreachable`},
		{Record{Reason: ReasonNotReady, Asked: "gpt", Why: &why.Answer{NotReady: []why.Replica{{Addr: "x", Why: "unreachable"}}}}, `no replica of "gpt" is ready; x: unreachable`},
	} {
		if c.rec.Explain(); c.rec.Why.Text != c.want || c.rec.Why.Do != c.rec.Reason.Do() {
			t.Errorf("%q, want %q", c.rec.Why.Text, c.want)
		}
	}
}

// TestMissing: an unknown model names the models there are, a model that is not ready its
// replicas with their causes; neither tells of another tenant.
func TestMissing(t *testing.T) {
	down, secret := decisiontest.Replica(2), decisiontest.Replica(3)
	down.Ready, down.Why, down.Models = false, "unreachable: refused", []fleet.Model{{ID: "n", Base: "n"}}
	secret.Tenant, secret.Models = "rival", []fleet.Model{{ID: "mine", Base: "mine"}}
	unread := decisiontest.Replica(4)
	unread.Ready, unread.Why, unread.Models = false, "starting", nil
	r := newRig(t, policy.Config{}, decisiontest.Replica(1), down, secret, unread)
	if got := r.decider.Missing("gpt", "", ReasonUnknownModel); !slices.Equal(got.Served, []string{"m"}) || !slices.Equal(got.NotReady, []why.Replica{{Addr: unread.Addr, Why: "starting"}}) {
		t.Errorf("%+v", got)
	}
	if got := r.decider.Missing("n", "", ReasonNotReady); !slices.Equal(got.NotReady, []why.Replica{{Addr: down.Addr, Why: down.Why}, {Addr: unread.Addr, Why: "starting"}}) || got.Served != nil {
		t.Errorf("%+v", got)
	}
	if got := r.decider.Missing("gpt", "rival", ReasonUnknownModel); !slices.Equal(got.Served, []string{"m", "mine"}) {
		t.Errorf("%+v", got)
	}
}

// TestAskedIsBounded: a record keeps a bounded, printable copy of a model's name.
func TestAskedIsBounded(t *testing.T) {
	for in, want := range map[string]string{
		"llama": "llama", "a\nb\x00c\x1b[2J": "a?b?c?[2J", strings.Repeat("é", 100): strings.Repeat("é", 64), "x\xff": "x",
	} {
		if got := Asked(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestEveryCauseIsDocumented: the tables of docs/explain.md have a row for every cause, with
// what to do, and for every place.
func TestEveryCauseIsDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/explain.md"))(t)
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .+ \\| (.+) \\|$").FindAllSubmatch(page, -1) {
		rows[string(m[1])] = string(m[2])
	}
	for _, c := range why.Causes() {
		if rows[string(c)] != c.Do() || c.Do() == "" {
			t.Errorf("%s: the page says to do %q, the router says %q", c, rows[string(c)], c.Do())
		}
	}
	places := []why.Place{why.Unsalted, why.OtherAdapter, why.OtherModel, why.BeyondSubset}
	for _, p := range places {
		if rows[string(p)] == "" {
			t.Errorf("the place %s is not documented", p)
		}
	}
	if n := len(why.Causes()) + len(places); len(rows) != n {
		t.Errorf("%d rows for %d causes and places", len(rows), n)
	}
}

// TestTokensThatAreLeft: an explanation counts what a replica neither has nor is about to have.
func TestTokensThatAreLeft(t *testing.T) {
	rec := Record{Prompted: Prompted{Prompts: 1, Tokens: 200, Blocks: 12, Block: 16}, Candidates: []CandidateRecord{{Replica: "a"}}}
	m := &rec.Candidates[0].State.Match
	m[policy.GPU] = policy.Stretch{Tokens: 96, Credit: 1, Source: policy.Reported}
	m[policy.Coming] = policy.Stretch{Tokens: 16, Credit: 1, Source: policy.Reported}
	if rec.Explain(); rec.Candidates[0].Why.Left != 88 {
		t.Errorf("%d tokens are left of 200, with 96 there and 16 coming", rec.Candidates[0].Why.Left)
	}
}
