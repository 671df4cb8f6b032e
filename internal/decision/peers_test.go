package decision

import (
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
)

// colleagues are the messages sent to other routers.
type colleagues struct{ told []Prefix }

func (c *colleagues) Send(p Prefix) {
	p.Keys = slices.Clone(p.Keys)
	c.told = append(c.told, p)
}

// routers are two routers, and the messages that the first has sent.
func routers(t *testing.T, events bool) (one, other *rig, told *colleagues) {
	all := replicas(2)
	if !events {
		all = silent(2)
	}
	one, other, told = newRig(t, policy.Config{}, all...), newRig(t, policy.Config{}, all...), new(colleagues)
	one.decider.o.Peers = told
	return one, other, told
}

// pass delivers the messages to the other router. They must have these statements.
func (c *colleagues) pass(t *testing.T, to *rig, kinds ...Statement) {
	t.Helper()
	var got []Statement
	for _, p := range c.told {
		got = append(got, p.Statement)
		to.decider.Receive(p)
	}
	if c.told = nil; !slices.Equal(got, kinds) {
		t.Errorf("told %v, want %v", got, kinds)
	}
}

// dry returns the router's decision at this moment.
func (r *rig) dry(p chained) (Decision, *Record) {
	w := new(Work)
	return r.decider.Decide(&Ask{Model: "m", Prompts: p, Dry: true}, w), &w.Record
}

// TestRoutersTellHowLongAnswersGet: as long as others were, and no longer than the request allows.
func TestRoutersTellHowLongAnswersGet(t *testing.T) {
	rest := func(most int) int {
		one, _, told := routers(t, false)
		one.decider.Decide(&Ask{Model: "m", Prompts: prompt(1, 0, 100), Answer: most}, new(Work))
		return told.told[0].Rest
	}
	if usual, few := rest(0), rest(1); few >= usual || rest(2) != few+1 || rest(1<<20) != usual {
		t.Errorf("%d tokens, with answers of a token %d, of two %d, of a million %d", usual, few, rest(2), rest(1<<20))
	}
}

// TestRoutersShareComing: a prompt that one router has just sent somewhere counts on
// the other, until it is withdrawn or its time is over.
func TestRoutersShareComing(t *testing.T) {
	one, other, told := routers(t, true)
	p := prompt(1, 0, 100)
	d, _ := one.ask(p)
	home := first(d)
	if told.told[0].Lasts <= 0 || told.told[0].Holder.Replica != home || told.told[0].Model != "m" {
		t.Errorf("told %+v", told.told[0])
	}
	told.pass(t, other, Observed)
	if d, rec := other.dry(p); first(d) != home || rec.Predicted != 100*blockSize {
		t.Errorf("the other router sends it to %s with %d tokens expected", first(d), rec.Predicted)
	}
	d.Reservation.Answered(503)
	d.Reservation.Release()
	told.pass(t, other, Ended)
	if _, rec := other.dry(p); rec.Predicted != 0 {
		t.Errorf("withdrawn, and %d tokens are expected", rec.Predicted)
	}
	long := Prefix{Statement: Observed, Model: "m", Holder: index.Holder{Replica: home}, Keys: atMarks(blockSize, p.keys()), Unit: blockSize, Lasts: time.Hour}
	other.decider.Receive(long)
	other.wait(maxReceivedTTL - time.Second)
	if _, rec := other.dry(p); rec.Predicted == 0 {
		t.Error("forgotten before its time")
	}
	other.wait(2 * time.Second)
	if _, rec := other.dry(p); rec.Predicted != 0 {
		t.Error("a peer's word is believed for longer than a minute")
	}
	big := prompt(2, 0, (maxSentBlocks+500)*16)
	one.ask(big)
	if n := len(told.told[0].Keys); n != maxSentBlocks {
		t.Errorf("%d marks are told of a prompt of %d", n, maxSentBlocks+500)
	}
}

// returned has all replicas discovered again.
func (r *rig) returned() {
	r.fleet.Set(r.fleet.Snapshot().Replicas...)
	r.decider.Find("m", "")
}

// TestRoutersShareTexts: where a text was sent counts on the other router, until
// that replica leaves; a departure is sent once.
func TestRoutersShareTexts(t *testing.T) {
	one, other, told := routers(t, false)
	text := chained{blocks: []int{1, 2, 3, 4, 5, 6, 7, 8}}.keys()
	ask := func(r *rig) Decision {
		return r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: len(text) * prefixhash.TextUnit, Dry: true}, new(Work))
	}
	d := one.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: len(text) * prefixhash.TextUnit}, new(Work))
	home := first(d)
	told.pass(t, other, Observed)
	if again := ask(other); first(again) != home || again.Reason != ReasonLearned {
		t.Errorf("the other router: %+v, want %s", again, home)
	}
	one.wait(time.Second)
	other.wait(time.Second)
	one.decider.Forget(home)
	told.pass(t, other, Invalidated)
	if again := ask(other); again.Reason != ReasonLearnedCold {
		t.Errorf("after the departure: %+v", again)
	}
	other.decider.o.Peers = told
	other.decider.Forget(home)
	told.pass(t, one) // it was sent already
	one.decider.Forget(home)
	told.pass(t, one) // of which nothing is known any more
	one.returned()
	one.decider.Receive(Prefix{Statement: Observed, Model: "m", Holder: index.Holder{Replica: home}, Keys: text})
	one.decider.Forget(home)
	told.pass(t, other, Invalidated)
	other.returned()
	other.decider.Receive(Prefix{Statement: Observed, Model: "m", Holder: index.Holder{Replica: home}, Keys: text})
	other.decider.Forget(home)
	told.pass(t, one, Invalidated)
}

// TestHearingOfStrangers changes nothing: models, replicas and ranks this router
// does not know, and prefixes without a block.
func TestHearingOfStrangers(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	p := prompt(1, 0, 10)
	here := index.Holder{Replica: "10.0.0.1:8000"}
	for _, kind := range []Statement{Observed, Ended} {
		for _, told := range []Prefix{
			{Statement: kind, Model: "x", Holder: here, Keys: p.keys(), Lasts: time.Minute},
			{Statement: kind, Model: "m", Holder: index.Holder{Replica: "10.9.9.9:8000"}, Keys: p.keys(), Lasts: time.Minute},
			{Statement: kind, Model: "m", Holder: index.Holder{Replica: here.Replica, Rank: 7}, Keys: p.keys(), Lasts: time.Minute},
			{Statement: kind, Model: "m", Holder: here, Lasts: time.Minute},
			{Statement: Invalidated, Holder: index.Holder{Replica: "10.9.9.9:8000"}},
		} {
			r.decider.Receive(told)
		}
	}
	if d, rec := r.dry(p); rec.Predicted != 0 || d.Reason != ReasonCold {
		t.Errorf("decided %+v with %d tokens expected", d, rec.Predicted)
	}
	if _, noted := r.decider.invalidated.Load("10.9.9.9:8000"); noted {
		t.Error("the departure of a replica nobody knows is noted for ever")
	}
	r.decider.Raise("x")
	r.decider.Raise("m")
	if r.decider.Pressure().Of("x", r.now).Raised || !r.decider.Pressure().Of("m", r.now).Raised {
		t.Error("pressure counts for the models that are served")
	}
}

// atMarks returns a prompt's keys as routers tell them each other.
func atMarks(unit int, keys []prefixhash.Key) []prefixhash.Key {
	return prefixhash.MarksOf(unit).AppendPicked(nil, keys)
}

// toldOf returns the tokens of a prompt of so many blocks up to its last mark.
func toldOf(blocks int) int {
	m := prefixhash.MarksOf(blockSize)
	return m.End(m.Within(blocks * blockSize))
}

// coming lets a prompt be on its way to a replica for an hour.
func (r *rig) coming(to string, unit int, keys []prefixhash.Key) {
	c, p := r.decider.history.Of(index.Holder{Replica: to}), history.Prompt{Keys: atMarks(unit, keys), Marks: prefixhash.MarksOf(unit)}
	c.Use(p, 0, r.now)
	c.Expect(p, r.now.Add(time.Hour))
}
