package decision

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// TestReuseLearnsWhenPromptsComeBack, by their deepest known key.
func TestReuseLearnsWhenPromptsComeBack(t *testing.T) {
	var r reuse
	now := time.Unix(1_700_000_000, 0)
	if _, times := r.known(); times != 0 {
		t.Errorf("%g uses before the first prompt", times)
	}
	keys := prompt(1, 0, 400).keys()
	for turn := range 20 {
		r.asked(history.Prompt{Keys: keys[:10*(turn+1)], Marks: prefixhash.MarksOf(blockSize)}, now)
		r.found(150, 200)
		now = now.Add(7 * time.Second)
	}
	if again, times := r.known(); math.Abs(again.Seconds()-7) > 0.1 || math.Abs(times-3) > 1e-6 {
		t.Errorf("prompts are used again after %s, stored tokens %g times", again, times)
	}
	p := history.Prompt{Keys: prompt(2, 0, 400).keys(), Marks: prefixhash.MarksOf(blockSize)}
	for range 2000 { // answers of 5 s, then a pause of 2 s
		r.asked(p, now)
		r.ended(p.Keys[len(p.Keys)-1], now.Add(5*time.Second))
		now = now.Add(7 * time.Second)
	}
	r.ended(12345, now) // a prompt that was not asked for changes nothing
	if again, _ := r.known(); math.Abs(again.Seconds()-2) > 0.1 {
		t.Errorf("prompts are used again %s after they end", again)
	}
	for range 5000 {
		r.found(200, 200)
	}
	if _, times := r.known(); times > mostReuse+1e-9 {
		t.Errorf("a stored token is used %g times", times)
	}
}

// TestPausesBeginWhenAnswersEnd: how long prompts take to be used again does not depend on how long
// answers run.
func TestPausesBeginWhenAnswersEnd(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	for turn := range 40 {
		d, _ := r.ask(prompt(1, 0, 40+turn))
		r.wait(50 * time.Second)
		end(d)
		r.wait(10 * time.Second)
	}
	mv, _ := r.decider.Find("m", "")
	if again, _ := mv.reuse.known(); math.Abs(again.Seconds()-10) > 0.5 {
		t.Errorf("%s pass, want 10s", again)
	}
}

// TestReuseEndsWithItsModel: a replica that lists another model again and again leaves nothing.
func TestReuseEndsWithItsModel(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	kept := 0
	for i := range 100 {
		rep := decisiontest.Replica(1)
		id := fmt.Sprint("model-", i)
		rep.Models = []fleet.Model{{ID: id, Base: id}}
		r.fleet.Set(rep)
		if mv, _ := r.decider.Find(id, ""); mv == nil {
			t.Fatalf("%s is not served", id)
		}
	}
	r.decider.views.reuses.Range(func(any, any) bool { kept++; return true })
	if kept != 1 {
		t.Errorf("%d models are remembered, one is listed", kept)
	}
}

// TestSpaceIsPriced where all candidates name the size of their caches: the one whose cache is
// sent more than it has room for would evict what is used again, also for a text without token ids.
func TestSpaceIsPriced(t *testing.T) {
	for _, named := range []bool{true, false} {
		all := caches(2, 1000)
		if !named {
			all[1].Blocks = 0
		}
		space := 1.0
		r := newRig(t, policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"space": &space}}}, all...)
		for round := range 4 {
			for i := range 60 {
				p := prompt(1, i, 40+round)
				r.stored(all[0].Addr, p)
				d, _ := r.ask(p)
				r.wait(time.Second)
				end(d)
			}
		}
		p := prompt(1, 999, 60)
		for _, a := range []Ask{{Prompts: p}, {Text: p.keys(), TextTokens: p.Tokens(0)}} {
			w := new(Work)
			a.Model, a.Dry = "m", true
			r.decider.Decide(&a, w)
			most := 0.0
			for i := range w.Record.Candidates {
				most = max(most, w.Record.Candidates[i].State.Space)
			}
			if priced := w.Record.Input.Reuse > 0; priced != named || priced != (most > 0) {
				t.Errorf("sizes named: %t, text: %t; a stored token is used %g times, the dearest candidate evicts a share of %g", named, a.Text != nil, w.Record.Input.Reuse, most)
			}
		}
	}
}

// TestLongAnswersAreLoad: a replica whose page says that answers have filled its cache has more
// context tokens in flight than were sent there, and gets the next prompt last.
func TestLongAnswersAreLoad(t *testing.T) {
	all := caches(2, 1000)
	for i, rep := range all {
		rep.Load = []fleet.Load{{At: time.Unix(1, 0), Running: 1, KVUsage: 0.9 - 0.5*float64(i)}}
	}
	r := newRig(t, policy.Config{}, all...)
	for i := range 20 {
		d, rec := r.ask(prompt(1, i, 4))
		for k := range rec.Candidates {
			if c := &rec.Candidates[k]; c.Replica == firstAddr && c.State.Live != 0.9*1000*blockSize {
				t.Fatalf("%g context tokens in flight, want 0.9 of the cache", c.State.Live)
			}
		}
		if d.Chosen == firstAddr {
			t.Fatalf("request %d goes to the full one", i)
		}
		end(d)
	}
}

// TestFullCachesAreStaggered: where answers fill the caches, the holders count differently much of
// them, evenly spread around nothing; hardly at half of that, and not at all where space has no price.
func TestFullCachesAreStaggered(t *testing.T) {
	for _, tt := range []struct{ usage, space, first float64 }{{1, 1, -0.3}, {0.5, 1, -0.3 / 16}, {1, 0, 0}, {0, 1, 0}} {
		all := caches(4, 1000)
		for _, rep := range all {
			rep.Load = []fleet.Load{{At: time.Unix(1, 0), Running: 1, KVUsage: tt.usage}}
		}
		r := newRig(t, policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"space": &tt.space}}}, all...)
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Dry: true, Prompts: prompt(1, 0, 4)}, w)
		for i := range w.Record.Candidates {
			c := &w.Record.Candidates[i].State
			if want := tt.first * (1 - 2*float64(i)/3) * 1000 * blockSize; math.Abs(c.Stagger-want) > 1 {
				t.Errorf("%+v: %g tokens of holder %d, want %g", tt, c.Stagger, i, want)
			}
		}
		mv, _ := r.decider.Find("m", "")
		for prompts, want := range map[float64]float64{0: -4800, 4000: -3600, 20_000: 0} { // of answers' tokens
			if got := mv.stagger(0, 1000*blockSize, prompts); math.Abs(got-want) > 1 {
				t.Errorf("%g tokens beside prompts of %g, want %g", got, prompts, want)
			}
		}
	}
}

// TestAnAnswerIsAsLongEverywhere: full caches leave room for a request after the same time, though the
// latest answers of one replica were short; and no longer than its own limit of tokens takes.
func TestAnAnswerIsAsLongEverywhere(t *testing.T) {
	all := caches(2, 1000)
	for i, rep := range all {
		rep.Load = []fleet.Load{{At: time.Unix(1, 0), Running: 10, KVUsage: 0.999, Answers: fleet.Answers{Count: 10, Tokens: float64(10 + 8000*i)}, Times: fleet.Times{Decode: fleet.Spent{Requests: 10, Seconds: 100}}}}
	}
	r := newRig(t, policy.Config{}, all...)
	last := math.Inf(1)
	for _, limit := range []int{0, 4} {
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Dry: true, Prompts: prompt(1, 0, 60), Answer: limit}, w)
		a, b := w.Record.Candidates[0].State, w.Record.Candidates[1].State
		if a.Crowding == 0 || a.Crowding != b.Crowding || a.Room != b.Room || a.Room >= last {
			t.Errorf("answers of at most %d tokens: room after %g and %g s, the longest %g; its own tokens take %g and %g s", limit, a.Room, b.Room, last, a.Crowding, b.Crowding)
		}
		last = a.Room
	}
}

// TestWhatRequestsOnTheirWayEvict is no match, although the replica still has it.
func TestWhatRequestsOnTheirWayEvict(t *testing.T) {
	for _, space := range []float64{0, 1} {
		all := caches(2, 200)
		r := newRig(t, policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"space": &space}}}, all...)
		p := prompt(1, 0, 100)
		r.stored(firstAddr, p)
		for range 2 {
			d, _ := r.ask(p)
			r.wait(time.Second)
			end(d)
		}
		for i := range 2 {
			r.on(firstAddr, prompt(2, i, 80))
		}
		d, rec := r.ask(p)
		c := &rec.Candidates[0].State.Match
		if moved, lost := strings.HasPrefix(d.Chosen, secondAddr), c.Credited() < c.Matched(); moved != (space > 0) || lost != moved {
			t.Errorf("space %g: %q is chosen; of %d tokens %d are expected to be found", space, d.Chosen, c.Matched(), c.Credited())
		}
	}
}

// TestWhatIsLostIsStillPredicted: the replica has told of the tokens, so the answer is compared with
// them, although all of them are expected to be evicted before.
func TestWhatIsLostIsStillPredicted(t *testing.T) {
	all := caches(2, 200)
	r := newRig(t, policy.Config{}, all...)
	p := prompt(1, 0, 100)
	r.stored(firstAddr, p)
	for _, q := range []Prompts{p, p, prompt(2, 0, 100), prompt(2, 1, 99)} {
		r.on(firstAddr, q)
	}
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Subset: []string{firstAddr}}, w)
	if c := &w.Record.Candidates[0].State.Match; d.Predicted != 100*blockSize || c.Credited() > 0 || c.Doubted() {
		t.Errorf("%d tokens are predicted, %d are credited, doubted: %t", d.Predicted, c.Credited(), c.Doubted())
	}
	end(d)
}

// TestShortPromptsAreUsedAgain: also a prompt with one mark shows after what time prompts are.
func TestShortPromptsAreUsedAgain(t *testing.T) {
	r, p, now := new(reuse), history.Prompt{Keys: []prefixhash.Key{7<<32 | 1}}, time.Unix(1_700_000_000, 0)
	r.asked(p, now)
	r.asked(p, now.Add(10*time.Second))
	if again, _ := r.known(); again < 9*time.Second || again > 11*time.Second {
		t.Errorf("used again after %v", again)
	}
}
