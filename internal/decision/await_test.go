package decision

import (
	"strconv"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
)

// answering is a rig with one replica that has ten blocks of a prompt on GPU and in CPU memory,
// and has cleared its cache: events do not tell whether CPU memory was cleared with it.
type answering struct {
	*rig
	p    chained
	w    Work
	last uint64
}

func newAnswering(t *testing.T) *answering {
	r := &answering{rig: newRig(t, policy.Config{}, replicas(1)...), p: prompt(1, 0, 10)}
	r.stored(one, r.p)
	for i := range r.p.blocks { // a chunk is one block
		copied := r.event(chained{blocks: r.p.blocks[:i+1]})
		copied.Tier, copied.Connector, copied.ByHash = index.TierCPU, index.OffloadChunks, true
		copied.Hashes, copied.Content = copied.Hashes[i:], nil
		r.apply(copied)
	}
	r.apply(index.Event{Kind: index.Cleared})
	return r
}

const keptBelow = 10 * blockSize // tokens that are loaded if CPU memory was not cleared

// sent is a request whose answer is awaited.
type sent struct {
	Decision
	id string
}

func (r *answering) send(a Ask) sent {
	r.t.Helper()
	a.Model = "m"
	if a.Prompts == nil {
		a.Prompts = r.p
	}
	s := sent{Decision: r.decider.Decide(&a, &r.w)}
	if s.Reservation == nil {
		r.t.Fatalf("no hint: %s", s.Reason)
	}
	r.last++
	s.Seq, s.id = r.last, strconv.FormatUint(r.last, 10)
	r.decider.Await(&s.Decision, s.id, &r.w)
	r.wait(time.Millisecond)
	return s
}

// end ends a request, and its answer has so many cached tokens.
func (r *answering) end(s sent, cached int) {
	s.Reservation.Answered(200)
	s.Reservation.Release()
	r.wait(10 * time.Millisecond)
	r.decider.Answered(s.Seq, s.id, Counted{Cached: cached}, true, false)
}

// TestADisprovedBlockIsNotCreditedAgain: once a replica's answers have disproved what it reports,
// the first block that was not found, and those behind it, count no more there, until it stores
// them again. Answers that are not exact, or that are not believed, take nothing away, and
// neither do those of caches whose hits cache groups decide.
func TestADisprovedBlockIsNotCreditedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		missed, exact, disproved, hybrid bool
		cached, want                     int // tokens
	}{
		"disproved":      {true, true, true, false, 3 * blockSize, 3 * blockSize},
		"nothing found":  {true, true, true, false, 0, 0},
		"within a block": {true, true, true, false, 3*blockSize + 5, 3 * blockSize},
		"all found":      {true, true, true, false, 10 * blockSize, 10 * blockSize},
		"a first doubt":  {false, true, true, false, 0, 10 * blockSize},
		"not believed":   {true, true, false, false, 0, 10 * blockSize},
		"another length": {true, false, true, false, 0, 10 * blockSize},
		"not said":       {true, true, true, false, -1, 10 * blockSize},
		"groups decide":  {true, true, true, true, 0, 10 * blockSize},
	} {
		r := &answering{rig: newRig(t, policy.Config{}, replicas(1)...), p: prompt(1, 0, 10)}
		if tt.hybrid {
			r.hybrid(r.p, 10)
		} else {
			r.stored(one, r.p)
		}
		r.wait(time.Second)
		if tt.missed {
			r.account(one).Missed()
		}
		longer := prompt(1, 0, 11) // its first ten blocks are r.p
		s := r.send(Ask{Prompts: longer})
		s.Reservation.Answered(400) // nothing stays coming
		s.Reservation.Release()
		r.decider.Answered(s.Seq, s.id, Counted{Cached: tt.cached}, tt.exact, tt.disproved)
		if _, rec := r.dry(longer); rec.Candidates[0].State.Match.Cached() != tt.want {
			t.Errorf("%s: %d tokens are reported, want %d", name, rec.Candidates[0].State.Match.Cached(), tt.want)
		}
		r.stored(one, r.p)
		if _, rec := r.dry(longer); !tt.hybrid && rec.Candidates[0].State.Match.Cached() != 10*blockSize {
			t.Errorf("%s: %d tokens when it has stored them again", name, rec.Candidates[0].State.Match.Cached())
		}
	}
}

// TestAnswersTeach: the answer to a prompt tells whether CPU memory was cleared with the GPU. From
// then on no answer is telling.
func TestAnswersTeach(t *testing.T) {
	for _, want := range []int{keptBelow, 0} {
		r := newAnswering(t)
		s := r.send(Ask{})
		if !s.Telling {
			t.Fatalf("%d tokens: the answer is not telling: %+v", want, r.w.cands)
		}
		r.end(s, want)
		if s := r.send(Ask{}); s.Telling || r.w.cands[0].Match.Matched()+r.w.cands[0].Match.Below() != want {
			t.Errorf("%d tokens: %+v, telling %v", want, r.w.cands, s.Telling)
		}
	}
}

// TestUnheardReplicasAreAskedSeldom: what a replica hits is guessed in few seconds of a minute while
// no answer is read, and with each request again after one.
func TestUnheardReplicasAreAskedSeldom(t *testing.T) {
	r := newAnswering(t)
	guesses := func(n int) (guessed int) {
		for range n {
			s := r.send(Ask{})
			if r.w.guess.Any() {
				guessed++
			}
			s.Reservation.Release()
			r.wait(time.Second)
		}
		return guessed
	}
	if n := guesses(unheard); n != unheard {
		t.Fatalf("%d of the first %d requests were guessed", n, unheard)
	}
	if n := guesses(10 * listenEvery); n != 10*listenFor {
		t.Errorf("%d guesses in %d seconds, want %d", n, 10*listenEvery, 10*listenFor)
	}
	for r.w.guess = (index.Guess{}); !r.w.guess.Any(); r.wait(2 * time.Minute) {
		r.end(r.send(Ask{}), keptBelow)
	}
	if n := guesses(100); n != 100 {
		t.Errorf("after an answer, %d of 100 requests were guessed", n)
	}
}

// TestNoEvidence: an answer that counts less than CPU memory has tells of a silent clear, unless it
// may differ for another cause; and none is awaited of a request that vLLM may look up several
// times, or not at all.
func TestNoEvidence(t *testing.T) {
	other := prompt(2, 0, 3)
	for name, c := range map[string]struct {
		do     func(r *answering)
		counts bool
	}{
		"alone": {func(r *answering) { r.end(r.send(Ask{}), 16) }, true},
		"one before": {func(r *answering) {
			before := r.send(Ask{Prompts: other, Must: true})
			s := r.send(Ask{})
			before.Reservation.Release()
			r.end(s, 16)
		}, false},
		"one meanwhile": {func(r *answering) {
			s := r.send(Ask{})
			r.send(Ask{Prompts: other, Must: true}).Reservation.Release()
			r.end(s, 16)
		}, false},
		"another router's": {func(r *answering) {
			r.account(one).SetShare("other", load.Share{Requests: 1}, r.now)
			r.end(r.send(Ask{}), 16)
		}, false},
		"another router's meanwhile": {func(r *answering) {
			s := r.send(Ask{})
			r.account(one).SetShare("other", load.Share{Requests: 1}, r.now)
			r.end(s, 16)
			r.account(one).SetShare("other", load.Share{}, r.now)
		}, false},
		"one that was not charged": {func(r *answering) {
			r.decider.Uncharged()
			r.end(r.send(Ask{}), 16)
		}, false},
		"answered before it ended": {func(r *answering) {
			s := r.send(Ask{})
			r.decider.Answered(s.Seq, s.id, Counted{Cached: 16}, true, false)
			s.Reservation.Release()
		}, false},
		"several answers": {func(r *answering) { r.end(r.send(Ask{Repeated: true}), 16) }, false},
		"no cache":        {func(r *answering) { r.end(r.send(Ask{Cacheless: true, Must: true}), 0) }, false},
		"another request": {func(r *answering) {
			s := r.send(Ask{})
			s.id = "another"
			r.end(s, 16)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAnswering(t)
			r.end(r.send(Ask{}), keptBelow)
			r.wait(2 * time.Minute)
			c.do(r)
			r.wait(2 * time.Minute)
			if s := r.send(Ask{}); s.Telling != c.counts {
				t.Errorf("%+v", s.Decision)
			}
		})
	}
}

// TestBlocksOnTheirWayTellNothing: what a replica finds of a prompt of which another computes blocks
// may be those.
func TestBlocksOnTheirWayTellNothing(t *testing.T) {
	r := newAnswering(t)
	before := r.send(Ask{})
	s := r.send(Ask{})
	before.Reservation.Release()
	r.end(s, keptBelow)
	r.wait(2 * time.Minute)
	if s := r.send(Ask{}); !s.Telling {
		t.Errorf("%+v", s.Decision)
	}
}

// TestAnAnswerTeachesOnce: nor does one whose place another request has taken.
func TestAnAnswerTeachesOnce(t *testing.T) {
	r := newAnswering(t)
	s := r.send(Ask{})
	r.end(s, keptBelow)
	if _, ok := r.decider.awaited.take(s.Seq, xxhash.Sum64String(s.id)); ok {
		t.Error("an answer is awaited after it has come")
	}
	old := r.send(Ask{})
	for range mostAwaited {
		s := r.send(Ask{})
		s.Reservation.Release()
	}
	old.Reservation.Release()
	if _, ok := r.decider.awaited.take(old.Seq, 0); ok {
		t.Error("more answers are awaited than are bounded")
	}
	if len(r.decider.awaited.all) != mostAwaited {
		t.Error("the bound is another one")
	}
}

// TestAwaitAllocatesNothing once its places have been used.
func TestAwaitAllocatesNothing(t *testing.T) {
	r := newAnswering(t)
	s := r.send(Ask{})
	s.Reservation.Release()
	for range mostAwaited {
		r.decider.Await(&s.Decision, s.id, &r.w)
	}
	if n := testing.AllocsPerRun(100, func() { r.decider.Await(&s.Decision, s.id, &r.w) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
