package decision

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// first and second are the addresses of two replicas.
const firstAddr, secondAddr = "10.0.0.1:8000", "10.0.0.2:8000"

// long and short are numbers of blocks that end at marks.
var long, short = prefixhash.MarksOf(blockSize).End(20) / blockSize, prefixhash.MarksOf(blockSize).End(10) / blockSize

// mixed are two replicas of which the second has no KV events.
func mixed() []*fleet.Replica {
	all := replicas(2)
	all[1].Events = nil
	return all
}

// on sends a prompt to one replica and ends the request.
func (r *rig) on(addr string, p Prompts) {
	d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Subset: []string{addr}}, new(Work))
	d.Reservation.Answered(200)
	d.Reservation.Ended(true)
	d.Reservation.Release()
}

// matches returns what two replicas are known to have of a prompt, and the reason and source of
// the decision.
func (r *rig) matches(t *testing.T, p chained) (one, two *policy.Candidate, rec *Record) {
	t.Helper()
	d, rec := r.dry(p)
	rec.Reason = d.Reason
	return candidate(t, rec, firstAddr), candidate(t, rec, secondAddr), rec
}

// TestUntilASidecarReports: the history stands for the cache of a replica of which no sidecar has
// reported a block, or has by another name or in another scheme.
func TestUntilASidecarReports(t *testing.T) {
	all := mixed()
	all[1].Sidecar = true
	r := newRig(t, policy.Config{}, all...)
	p := prompt(1, 0, 100)
	r.on(secondAddr, p)
	if _, two, rec := r.matches(t, p); !two.Match.Learned() || rec.Reason != ReasonLearned {
		t.Errorf("nothing is reported: %s, %+v", rec.Reason, two.Match)
	}
	foreign := r.event(prompt(1, 0, 50))
	foreign.Content, foreign.Scope.Scheme = nil, "engine"
	must.Get(r.index.Apply(&index.Batch{Holder: index.Holder{Replica: secondAddr}, Incarnation: r.publishers[secondAddr].life, Events: []index.Event{foreign}}))(t)
	r.fleet.Set(all...)
	if _, two, rec := r.matches(t, p); !two.Match.Learned() || rec.Reason != ReasonLearned {
		t.Errorf("hashes of another scheme are: %s, %+v", rec.Reason, two.Match)
	}
	r.stored(secondAddr, prompt(1, 0, 50))
	r.fleet.Set(all...)
	if _, two, rec := r.matches(t, p); two.Match.Learned() || two.Match.Matched() != 50*blockSize || rec.Reason != ReasonWarm {
		t.Errorf("some blocks are: %s, %+v", rec.Reason, two.Match)
	}
}

// TestTokenIdsWithoutEvents: of replicas that report nothing, the history of token ids is
// known: of this router and of another one that it tells, until the replica is dropped.
func TestTokenIdsWithoutEvents(t *testing.T) {
	one, other, told := routers(t, false)
	p := prompt(1, 0, 100)
	if _, _, rec := one.matches(t, p); rec.Reason != ReasonLearnedCold || rec.Match.Source() != policy.NoSource {
		t.Errorf("a new prompt: %s, match %q", rec.Reason, rec.Match.Source())
	}
	d, _ := one.ask(p)
	told.pass(t, other, Observed)
	end(d)
	told.pass(t, other, Ended)
	longer := prompt(1, 0, 120)
	for name, r := range map[string]*rig{"this router": one, "another": other} {
		again, rec := r.dry(longer)
		c := candidate(t, rec, first(d))
		if first(again) != first(d) || again.Reason != ReasonLearned || rec.Match.Source() != policy.History || !c.Match.Learned() || c.Match.Cached() != c.Match.Matched() {
			t.Errorf("%s: %s to %s, match %q of %+v", name, again.Reason, first(again), rec.Match.Source(), c)
		}
		if want := 100 * blockSize; c.Match.Matched() > want || c.Match.Matched() < want*8/10 {
			t.Errorf("%s: %d tokens, %d were sent", name, c.Match.Matched(), want)
		}
	}
	one.decider.Forget(first(d))
	told.pass(t, other, Invalidated)
	if again, _ := other.dry(longer); again.Reason != ReasonLearnedCold {
		t.Errorf("after the replica has left: %s", again.Reason)
	}
}

// TestEventsThatDoNotArrive: while a replica's events are not received, the history takes
// their place, beside what was reported before; afterwards the events count alone.
func TestEventsThatDoNotArrive(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	h := index.Holder{Replica: secondAddr}
	reported, sent := prompt(1, 0, long), prompt(2, 0, long)
	r.stored(secondAddr, reported)
	r.decider.Following(h, false)
	r.on(secondAddr, sent)
	if _, two, _ := r.matches(t, reported); two.Match.Matched() != long*blockSize || two.Match.Learned() {
		t.Errorf("of what was reported: %+v", two)
	}
	if _, two, rec := r.matches(t, sent); two.Match.Matched() != long*blockSize || !two.Match.Learned() || rec.Match.Source() != policy.History {
		t.Errorf("of what was sent: %+v, match %q", two, rec.Match.Source())
	}
	r.decider.Following(h, true)
	if _, two, _ := r.matches(t, sent); two.Match.Matched() != 0 {
		t.Errorf("%d tokens, of which the events say nothing", two.Match.Matched())
	}
	r.wait(2 * staleAfter)
	r.decider.Following(h, false)
	if _, two, _ := r.matches(t, sent); two.Match.Matched() != 0 {
		t.Errorf("%d tokens of a history that was not kept up", two.Match.Matched())
	}
}

// several are prompts of one request.
type several []chained

func (p several) Len() int         { return len(p) }
func (p several) Tokens(i int) int { return p[i].Tokens(0) }
func (p several) Length(i int) int { return p[i].Length(0) }
func (p several) AppendKeys(dst []prefixhash.Key, s *index.Scope, i int) []prefixhash.Key {
	return p[i].AppendKeys(dst, s, 0)
}
func (p several) AppendChain(dst []prefixhash.Key, c index.Keying, i int) []prefixhash.Key {
	return p[i].AppendChain(dst, c, 0)
}
func (p several) Sentinel(s *index.Scope, i int) (uint64, int) { return p[i].Sentinel(s, 0) }

// TestSeveralPrompts: each prompt of a request is in the history by itself, and gone if the
// replica has refused them.
func TestSeveralPrompts(t *testing.T) {
	r := newRig(t, policy.Config{}, silent(2)...)
	a, b, c := prompt(1, 0, long), prompt(2, 0, short), prompt(3, 0, long)
	r.on(secondAddr, several{a, b})
	for _, tt := range []struct {
		p    Prompts
		want int
	}{{a, long}, {b, short}, {c, 0}, {several{b, c, a}, long + short}} {
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Prompts: tt.p, Dry: true}, w)
		if got := candidate(t, &w.Record, secondAddr).Match.Matched(); got != tt.want*blockSize {
			t.Errorf("%d tokens, want %d", got, tt.want*blockSize)
		}
	}
	d := r.decider.Decide(&Ask{Model: "m", Prompts: several{c, b}}, new(Work))
	d.Reservation.Answered(503)
	d.Reservation.Release()
	if one, two, _ := r.matches(t, c); one.Match.Matched()+two.Match.Matched() != 0 {
		t.Error("a refused prompt is in the history")
	}
}

// TestHistoryFollowsTheRequest to the replica that has really served it, also from and to
// replicas with events, and if the hint was withheld.
func TestHistoryFollowsTheRequest(t *testing.T) {
	for _, tt := range []struct {
		name     string
		fleet    []*fleet.Replica
		withheld bool
	}{{"silent replicas", silent(2), false}, {"from one with events", mixed(), false}, {"withheld", silent(2), true}, {"withheld, mixed", mixed(), true}} {
		r := newRig(t, policy.Config{}, tt.fleet...)
		p := prompt(1, 0, long)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Subset: []string{firstAddr}, Withheld: tt.withheld}, new(Work))
		r.decider.Served(&d, secondAddr)
		end(d)
		r.wait(time.Minute) // the prompt is no longer coming
		if one, two, _ := r.matches(t, p); one.Match.Matched() != 0 || two.Match.Matched() != long*blockSize {
			t.Errorf("%s: %d and %d tokens", tt.name, one.Match.Matched(), two.Match.Matched())
		}
	}
}

// TestABlockSizeThatNobodyTells is assumed where nothing is reported.
func TestABlockSizeThatNobodyTells(t *testing.T) {
	all := silent(2)
	for _, rep := range all {
		rep.BlockSize = 0
	}
	r := newRig(t, policy.Config{}, all...)
	p := prompt(1, 0, long)
	r.on(secondAddr, p)
	if _, two, _ := r.matches(t, p); two.Match.Matched() != long*assumedBlock {
		t.Errorf("%d tokens", two.Match.Matched())
	}
	keys := p.keys()
	keys = []prefixhash.Key{keys[prefixhash.TextUnit/assumedBlock-1]}
	for _, unit := range []int{0, prefixhash.TextUnit, assumedBlock, 48} { // another router's marks
		r.decider.Receive(Prefix{Statement: Observed, Model: "m", Holder: index.Holder{Replica: firstAddr}, Keys: slices.Clone(keys), Unit: unit})
		one, _, _ := r.matches(t, p)
		if known := unit != 48; (one.Match.Matched() > 0) != known {
			t.Errorf("marks of %d tokens: %d tokens", unit, one.Match.Matched())
		}
		r.decider.history.Of(index.Holder{Replica: firstAddr}).Clear()
	}
}

// TestTheSizeIsLearnedFromAnswers: an answer whose count lacks what the history has makes the
// cache smaller, also one to a text whose tokens are estimated; a count that is not known, of a
// request with several prompts, or of a replica whose size is named teaches nothing.
func TestTheSizeIsLearnedFromAnswers(t *testing.T) {
	p := prompt(1, 0, long)
	text := func() *Ask { return &Ask{Model: "m", Text: p.keys(), TextTokens: long * prefixhash.TextUnit} }
	ids := func() *Ask { return &Ask{Model: "m", Prompts: p} }
	for _, tt := range []struct {
		name    string
		ask     func() *Ask
		named   bool
		n       Counted
		learned bool
	}{
		{"nothing is cached", ids, false, Counted{Prompt: 1000, Answer: 7}, true},
		{"a text", text, false, Counted{Prompt: 3000, Answer: 7}, true},
		{"all is cached", ids, false, Counted{Prompt: 1000, Cached: 999}, false},
		{"not known", ids, false, Counted{Prompt: 1000, Cached: -1}, false},
		{"named", ids, true, Counted{Prompt: 1000}, false},
		{"several prompts", func() *Ask { return &Ask{Model: "m", Prompts: several{p, p}} }, false, Counted{Prompt: 2000}, false},
	} {
		all := silent(1)
		if tt.named {
			all[0].Blocks = 1000
		}
		r := newRig(t, policy.Config{}, all...)
		c := r.decider.history.Of(index.Holder{Replica: firstAddr})
		r.dry(p) // reads the size
		before, _ := c.Capacity()
		for i := range 2 {
			w := new(Work)
			d := r.decider.Decide(tt.ask(), w)
			d.Seq = uint64(i + 1)
			r.decider.Await(&d, "id", w)
			if want := i > 0 && !tt.named && tt.name != "several prompts"; d.Telling != want {
				t.Errorf("%s: the answer of request %d tells something: %v", tt.name, i, d.Telling)
			}
			end(d)
			r.decider.Answered(d.Seq, "id", tt.n, false, false)
			r.decider.Answered(d.Seq, "id", tt.n, false, false) // once
		}
		after, _ := c.Capacity()
		if (after < before) != tt.learned || after > before {
			t.Errorf("%s: from %d to %d tokens", tt.name, before, after)
		}
	}
}

// TestAnswersKeepToTheContext: however long a replica says that its answers are, none is expected
// that is longer than its model's context.
func TestAnswersKeepToTheContext(t *testing.T) {
	const context = 4096
	all := mixed()
	all[1].Models[0].MaxLen = context
	r := newRig(t, policy.Config{}, all...)
	cache := r.decider.history.Of(index.Holder{Replica: secondAddr})
	cache.SetCapacity(1_500_000)
	for i := range 3 {
		w, id := new(Work), strconv.Itoa(i)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(i+1, 0, long), Subset: []string{secondAddr}}, w)
		d.Seq = uint64(i + 1)
		r.decider.Await(&d, id, w)
		end(d)
		r.decider.Answered(d.Seq, id, Counted{Prompt: long * blockSize, Answer: 1 << 40}, true, false)
	}
	if n := cache.Answer(); n < context/2 || n > context {
		t.Errorf("answers of %d tokens are expected in a context of %d", n, context)
	}
}
