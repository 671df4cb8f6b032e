package decision

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sglang"
)

// newBounded is a rig with replicas of SGLang that hold ten blocks of one prompt. With a limit
// their matches are upper bounds.
func newBounded(t *testing.T, n int, limit string) *answering {
	all := replicas(n)
	for _, rep := range all {
		rep.SGLang = new(sglang.Server)
	}
	r := &answering{rig: newRig(t, policy.Config{}, all...), p: prompt(1, 0, 10)}
	for _, rep := range all {
		r.index.SetGroups(rep.Addr, &index.GroupSettings{Rule: index.GroupRuleSGLang, EagleKnown: true, Block: blockSize, Limit: limit})
		r.stored(rep.Addr, r.p)
	}
	return r
}

// many makes the prompt long enough that few answers teach.
func (r *answering) many(blocks int) {
	r.p = prompt(1, 0, blocks)
	for addr := range r.publishers {
		r.stored(addr, r.p)
	}
}

const window = "its windows are not announced"

// TestBoundsAreLearned: a replica never finds what its events report. It is credited with less
// and less of it; the record has the bound, and what is credited.
func TestBoundsAreLearned(t *testing.T) {
	r := newBounded(t, 1, window)
	r.many(300)
	const bound = 300 * blockSize
	for range 40 {
		s := r.send(Ask{})
		if !s.Telling {
			t.Fatalf("the answer is not telling: %+v", s.Decision)
		}
		r.end(s, 0)
	}
	s := r.send(Ask{})
	rec, c := &r.w.Record, r.w.cands[0]
	if rec.Predicted != bound || c.Match.Matched() != bound || c.Match.Cached() != bound {
		t.Errorf("the bound is gone: %+v", c)
	}
	if rec.Match.Unfound() < bound*9/10 || c.Match.Credited() != bound-rec.Match.Unfound() || s.Reported != 0 {
		t.Errorf("%d of %d tokens are not expected, %d claimed", rec.Match.Unfound(), bound, s.Reported)
	}
	whole := policy.DefaultTTFT()
	if cost := whole.Cost(rec.Input, &c); cost < 0.8*whole.Prefill(rec.Input.Input, 0) {
		t.Errorf("the prefill costs %g s, of %g s without a match", cost, whole.Prefill(rec.Input.Input, 0))
	}
	r.end(s, bound)
	if s = r.send(Ask{}); r.w.Record.Match.Unfound() != 0 || s.Telling || s.Reported != bound {
		t.Errorf("the last answer had all: %d tokens are not expected, telling %v", r.w.Record.Match.Unfound(), s.Telling)
	}
}

// TestBoundsThatTeachNothing: exact matches stay, and answers that are not comparable with the
// bound count for nothing.
func TestBoundsThatTeachNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		limit string
		ask   Ask
		wrong bool // the replica counts another number of prompt tokens
		uncut bool // the answer has no cached tokens
	}{
		"exact":            {limit: ""},
		"several answers":  {limit: window, ask: Ask{Repeated: true}},
		"another prompt":   {limit: window, wrong: true},
		"no cached tokens": {limit: window, uncut: true},
	} {
		r := newBounded(t, 1, tt.limit)
		r.many(300)
		for range 40 {
			s := r.send(tt.ask)
			s.Reservation.Release()
			n := Counted{}
			if tt.uncut {
				n.Cached = -1
			}
			r.decider.Answered(s.Seq, s.id, n, !tt.wrong, false)
		}
		if r.send(Ask{}); r.w.Record.Match.Unfound() != 0 {
			t.Errorf("%s: %d tokens are not expected", name, r.w.Record.Match.Unfound())
		}
	}
}

// TestBoundsBecomeExact: what was learned while a match was an upper bound does not touch it
// when it is exact.
func TestBoundsBecomeExact(t *testing.T) {
	r := newBounded(t, 1, window)
	r.many(300)
	for range 40 {
		r.end(r.send(Ask{}), 0)
	}
	r.index.SetGroups(one, &index.GroupSettings{Rule: index.GroupRuleSGLang, EagleKnown: true, Block: blockSize})
	if r.send(Ask{}); r.w.Record.Match.Unfound() != 0 {
		t.Errorf("%d tokens are not expected of an exact match", r.w.Record.Match.Unfound())
	}
}

// TestBoundsMoveRequests: of two replicas with equal bounds, the one whose answers have found it
// gets the request, though the other's requests are fewer by one.
func TestBoundsMoveRequests(t *testing.T) {
	r := newBounded(t, 2, window)
	r.many(300)
	keys := r.p.keys()
	end := uint64(keys[len(keys)-1])
	for range 40 {
		r.account("10.0.0.1:8000").FoundOf(end, 300*blockSize, 0)
		r.account("10.0.0.2:8000").FoundOf(end, 300*blockSize, 300*blockSize)
	}
	for range 2 {
		if d, rec := r.ask(r.p); first(d) != "10.0.0.2:8000" {
			t.Errorf("%s: %+v", d.Destination, rec.Candidates)
		}
	}
}

// TestBoundsOfBlocksOnTheirWay: a match that another request has made longer is not compared
// with what was counted at its end.
func TestBoundsOfBlocksOnTheirWay(t *testing.T) {
	r := newBounded(t, 1, window)
	long := chained{blocks: prompt(1, 0, 300).blocks, extra: 1}
	keys := long.keys()
	for range 40 {
		r.account(one).FoundOf(uint64(keys[len(keys)-1]), 300*blockSize, 0)
	}
	before := r.send(Ask{Prompts: long})
	r.send(Ask{Prompts: long})
	if c := r.w.cands[0]; c.Match.Matched() != 300*blockSize || c.Match.Cached() != 10*blockSize || c.Match.Unfound() != 0 {
		t.Errorf("%+v", c)
	}
	before.Reservation.Release()
}
