package shortfall

import (
	"testing"
	"time"
)

const replicaA = "10.0.0.1:8000"

// answer is an answer about a thousand reported tokens.
func answer(cached int) Answer {
	return Answer{Replica: replicaA, Known: true, Reported: 1000, Prompt: 1200, Counted: 1200, Cached: cached}
}

// looked returns a course whose Watch knows its replica.
func looked() *course {
	c := newCourse()
	c.w.Look(c.now, []Reading{c.read})
	return c
}

// tell gives the Watch n answers, and returns after how many the flag changed, 0 if never.
func (c *course) tell(n int, a Answer) (at int, change Change) {
	for i := range n {
		if got, changed, _ := c.w.Answered(a); changed {
			return i + 1, got
		}
	}
	return 0, Change{}
}

// TestAnswersRaiseAndEndTheFlag: ten requests without a hit raise it, with their cause; ten
// that hit end it.
func TestAnswersRaiseAndEndTheFlag(t *testing.T) {
	longer := answer(0)
	longer.Counted++
	for want, missing := range map[Cause]Answer{CauseCache: answer(0), CauseTokens: longer} {
		c := looked()
		at, got := c.tell(50, missing)
		if at != doubtful || !got.Flagged || got.Cause != want || got.Predicted != 10_000 || got.Hits != 0 {
			t.Errorf("%s: after %d answers %+v", want, at, got)
		}
		if at, got := c.tell(50, answer(1000)); at != doubtful || got.Flagged || got.Cause != CauseUnknown {
			t.Errorf("%s: after %d answers that hit %+v", want, at, got)
		}
	}
}

// TestWhatWasDisprovedEndsTheFlag: the flag has taken what was reported of a prompt out of the
// index, so that nothing is reported of it. Ten answers that find it nevertheless end the flag; those
// that find nothing do not.
func TestWhatWasDisprovedEndsTheFlag(t *testing.T) {
	c := looked()
	c.tell(doubtful, answer(0))
	c.play(1, 1e5, 0)
	nothing, found := answer(0), answer(1000)
	nothing.Reported, found.Reported = 0, 0
	if at, got := c.tell(50, nothing); at != 0 {
		t.Errorf("after %d answers that find nothing %+v", at, got)
	}
	if at, got := c.tell(50, found); at != doubtful || got.Flagged {
		t.Errorf("after %d answers that find what is not reported %+v", at, got)
	}
	c.play(1, 1e5, 0)
	if s := c.w.State(replicaA); s.Shortfall != 0 {
		t.Errorf("of nothing that was reported a share is missing: %+v", s)
	}
}

// TestOneFirstBlockIsOneVote: prompts with one first block that are not found, which a client can
// construct, make no replica suspect that finds those of others; where the prompts of most first
// blocks are not found, and where all have one, the flag is raised. Ten in a row disprove the
// blocks of their own first block, and each does while the flag is raised.
func TestOneFirstBlockIsOneVote(t *testing.T) {
	for name, tt := range map[string]struct {
		fine, short uint64 // first blocks whose prompts are found, and not found
		want        bool
	}{
		"one constructed set": {3, 1, false}, "beside one application": {1, 1, false},
		"one application": {0, 1, true}, "most": {3, 10, true}, "all": {0, 10, true}, "beyond memory": {40, 1, false},
	} {
		c := looked()
		tell := func(head uint64, cached int) (disproved bool) {
			a := answer(cached)
			a.Head = head
			_, _, disproved = c.w.Answered(a)
			return disproved
		}
		for n := range 4 * (tt.fine + 1) {
			if tt.fine > 0 {
				tell(1+n%tt.fine, 1000)
			}
		}
		first, flagged := 0, false
		for n := range 78 {
			head := 1000 + uint64(n)%tt.short
			disproved := tell(head, 0)
			flagged = flagged || c.w.State(replicaA).Flagged
			if disproved && first == 0 {
				first = n + 1
			}
		}
		if flagged != tt.want || first != doubtful {
			t.Errorf("%s: flagged %v, disproved first by answer %d", name, flagged, first)
		}
	}
}

func TestAnswersThatHitEnoughRaiseNothing(t *testing.T) {
	for _, cached := range []int{500, 700, 1000, 5000} {
		c := looked()
		if at, got := c.tell(1000, answer(cached)); at != 0 {
			t.Errorf("%d cached tokens of 1000: after %d answers %+v", cached, at, got)
		}
	}
	c := looked()
	unknown, cold := Answer{Replica: replicaA, Reported: 1000}, Answer{Replica: replicaA, Known: true, Prompt: 10, Counted: 11}
	for name, a := range map[string]Answer{"no usage": unknown, "nothing reported": cold, "another replica": {Replica: "10.0.0.9:8000", Known: true, Reported: 1000}} {
		if at, got := c.tell(1000, a); at != 0 {
			t.Errorf("%s: after %d answers %+v", name, at, got)
		}
	}
}

// TestOtherHitsMakeUpForNothing: a replica that claims large hits of some prompts is flagged
// for those that it does not hit.
func TestOtherHitsMakeUpForNothing(t *testing.T) {
	c := looked()
	for i := range 100 {
		a := answer(0)
		if i%4 == 0 {
			a.Cached = 1 << 30
		}
		if got, changed, _ := c.w.Answered(a); changed {
			if !got.Flagged {
				t.Errorf("%+v", got)
			}
			return
		}
	}
	t.Error("three of four prompts were not hit, and nothing is flagged")
}

// TestAnswersDecideBeforeCounters: where there are enough answers, counters, which have other
// traffic and requests in flight in them, neither raise nor end the flag.
func TestAnswersDecideBeforeCounters(t *testing.T) {
	for name, honest := range map[string]bool{"counters lack hits": true, "counters have others' hits": false} {
		c := looked()
		cached, hits := 0, 1e6
		if honest {
			cached, hits = 1000, 0
		}
		changes := 0
		for range 20 {
			for range 15 {
				if _, changed, _ := c.w.Answered(answer(cached)); changed {
					changes++
				}
			}
			changes += len(c.play(1, 1e5, hits))
		}
		s := c.w.State(replicaA)
		if s.Flagged == honest || (changes != 0) == honest || !s.Complete || honest && s.Shortfall != 0 || !honest && s.Shortfall != 1 {
			t.Errorf("%s: %d changes, %+v", name, changes, s)
		}
	}
}

// TestCountersGoOnWhereAnswersEnd: a flag that answers raised ends by counters when answers
// have no usage any more.
func TestCountersGoOnWhereAnswersEnd(t *testing.T) {
	s := newServed()
	s.send(20, 100*time.Millisecond, 0, time.Second, 1)
	if at, got := (&course{w: s.w}).tell(50, Answer{Replica: s.read.Replica, Known: true, Reported: 1000}); at != doubtful {
		t.Fatalf("after %d answers %+v", at, got)
	}
	for range 20 {
		s.send(100, 100*time.Millisecond, 0, time.Second, 1)
	}
	if got := s.w.State(s.read.Replica); got.Flagged {
		t.Errorf("hits by the counters, but %+v", got)
	}
}

// TestCurious: every answer is wanted of a replica that is new, misses, or is flagged.
func TestCurious(t *testing.T) {
	c := newCourse()
	want := func(curious bool, when string) {
		t.Helper()
		if c.w.Curious(replicaA, false) != curious {
			t.Errorf("curious %v: %s", !curious, when)
		}
	}
	want(true, "before the first look")
	c.play(1, 1e5, 1e5)
	want(true, "new")
	c.tell(doubtful, answer(1000))
	want(false, "ten answers are compared")
	c.tell(1, answer(0))
	want(true, "one missed")
	c.tell(1, answer(1000))
	want(false, "and the next made up for it")
	c.tell(doubtful, answer(0))
	want(true, "flagged")
	c.w.Look(c.now, nil)
	c.w.Look(c.now, []Reading{c.read})
	want(true, "joined again")
	if c.w.Curious("", true) {
		t.Error("curious about answers of no replica")
	}
	for range unanswered {
		c.w.Curious(replicaA, false)
	}
	want(false, "nobody reports answers")
	c.tell(1, Answer{Replica: replicaA})
	want(true, "somebody does")
	c.tell(unread, Answer{Replica: replicaA})
	want(false, "its answers have no usage")
	if c.w.Curious(replicaA, true) {
		t.Error("curious about telling answers, which have no usage")
	}
	c.tell(doubtful, answer(1000))
	want(false, "ten answers are compared")
	if !c.w.Curious(replicaA, true) {
		t.Error("not curious about a telling answer")
	}
}
