package simulator

import (
	"math"
	"testing"
)

func simulate(t *Trace, c Config, load float64) (*Sim, Result) {
	c.Replicas, c.Hardware, c.Seed = 4, H100(), 1
	s := New(c, t, load*Saturation(t, Config{Replicas: 4, Hardware: H100()}))
	return s, s.Run()
}

// TestEveryRequestEnds: in order, with no more cached than there was, and the
// engines are left with nothing pinned.
func TestEveryRequestEnds(t *testing.T) {
	trace := Synthetic(1500, 1)
	for name, policy := range Rivals {
		s, res := simulate(trace, Config{Policy: policy}, 0.9)
		for _, r := range s.requests {
			if !(r.First > r.At && r.Done >= r.First) || r.Hit >= r.Input || r.Hit < 0 {
				t.Fatalf("%s: request %+v", name, r)
			}
		}
		for i, e := range s.engines {
			d := e.Scheduler.(*dense)
			if d.cache.free != d.cache.pages || d.active() != 0 || len(d.waiting) != 0 {
				t.Errorf("%s: replica %d ends with %d of %d pages free, %d running", name, i, d.cache.free, d.cache.pages, d.active())
			}
		}
		if len(res.TTFT) != 1350 || res.Busy <= 0 || res.Busy > 1 || res.Imbalance < 1 {
			t.Errorf("%s: %d times, busy %g, imbalance %g", name, len(res.TTFT), res.Busy, res.Imbalance)
		}
	}
}

// TestASinglePrefillTakesWhatTheModelSays holds the engine to its formula.
func TestASinglePrefillTakesWhatTheModelSays(t *testing.T) {
	b := NewBuilder("one")
	b.Add(0, 1024, 3, []int64{1, 2})
	b.Add(100, 1024, 1, []int64{1, 2}) // by then all but its last token is cached
	hw := H100()
	s := New(Config{Replicas: 1, Hardware: hw, Policy: Rivals["p2c"]}, b.Trace(), 0.02)
	s.Run()
	first, second := s.requests[0], s.requests[1]
	if want := hw.Step + hw.Prefill(1024, 0) + hw.Sequence; math.Abs(first.First-want) > 1e-12 {
		t.Errorf("first token after %g s, want %g", first.First, want)
	}
	decode := func(context float64) float64 { return hw.Step + hw.Weights + hw.DecodeToken*context + hw.Sequence }
	if want := first.First + decode(1025) + decode(1026); math.Abs(first.Done-want) > 1e-12 {
		t.Errorf("done after %g s, want %g", first.Done, want)
	}
	if want := hw.Step + hw.Weights + hw.PrefillPair*(1023+0.5) + hw.Sequence; second.Hit != 1023 || math.Abs(second.First-second.At-want) > 1e-9 {
		t.Errorf("a full hit: %d cached, first token after %g s, want %g", second.Hit, second.First-second.At, want)
	}
}

func TestARunIsAFunctionOfItsSeed(t *testing.T) {
	trace := Synthetic(800, 1)
	for _, name := range []string{"p2c", "llm-d", "dynamo"} {
		_, a := simulate(trace, Config{Policy: Rivals[name]}, 0.8)
		_, b := simulate(trace, Config{Policy: Rivals[name]}, 0.8)
		if a.Mean != b.Mean || a.Hit != b.Hit {
			t.Errorf("%s: mean %g and %g", name, a.Mean, b.Mean)
		}
	}
}

// TestTheBoundsBound: one shared cache is better than an oracle on separate
// ones, which is better than balancing without caches.
func TestTheBoundsBound(t *testing.T) {
	trace := Synthetic(2500, 1)
	_, p2c := simulate(trace, Config{Policy: Rivals["p2c"]}, 0.9)
	_, oracle := simulate(trace, Config{Policy: Rivals["oracle"]}, 0.9)
	_, pooled := simulate(trace, Config{Policy: Rivals["oracle"], Pooled: true}, 0.9)
	if !(pooled.Mean <= oracle.Mean && oracle.Mean < p2c.Mean && pooled.Hit >= oracle.Hit && oracle.Hit > p2c.Hit) {
		t.Errorf("pooled %g (%g), oracle %g (%g), p2c %g (%g)", pooled.Mean, pooled.Hit, oracle.Mean, oracle.Hit, p2c.Mean, p2c.Hit)
	}
}

func TestNoHintFallsBackToTwoChoices(t *testing.T) {
	trace := Synthetic(300, 1)
	none := func(s *Sim) Policy { return rival{s, func(float64, *Request) int { return -1 }, nil} }
	_, got := simulate(trace, Config{Policy: none}, 0.5)
	_, want := simulate(trace, Config{Policy: Rivals["p2c"]}, 0.5)
	if got.Mean != want.Mean {
		t.Errorf("mean %g without hints, %g with P2C", got.Mean, want.Mean)
	}
}

// TestAnswersAreReused: the next turn of a conversation finds the answer's blocks, from the
// end of the request on, also by the router's events.
func TestAnswersAreReused(t *testing.T) {
	b := NewBuilder("turns")
	b.Add(0, 40, 40, []int64{1, 2})
	b.Add(100, 100, 1, []int64{1, 2, 3, 4, 5, 6})
	trace := b.Trace()
	trace.Block = 16
	trace.Requests[0].Answer = trace.Requests[1].Blocks[2:5]
	s := New(Config{Replicas: 2, Hardware: H100(), Policy: Rivals["llm-d"]}, trace, 0.02)
	s.Run()
	first, second := s.requests[0], s.requests[1]
	if second.Hit != 64 || second.Replica != first.Replica { // of the fifth block, the last token was never computed
		t.Errorf("%d tokens cached on replica %d, want 64 on %d", second.Hit, second.Replica, first.Replica)
	}
	c := s.engines[first.Replica].Scheduler.(*dense).cache
	if left := c.pages - c.spare; c.free != c.pages || left != 6 { // the second prompt's six full blocks
		t.Errorf("%d pages hold blocks, %d of %d are free", left, c.free, c.pages)
	}
}

// alone is a scheduler whose steps the test takes.
func alone(blocks, pages, batch, sequences int) *dense {
	hw := H100()
	hw.Budget, hw.Sequences = batch, sequences
	hw.Capacity = pages * page
	return NewScheduler(hw, blocks).(*dense)
}

func (d *dense) step() (Batch, Ended) {
	b, _ := d.Begin()
	return b, d.End()
}

// TestAnswersAreEvictedFirst: a replica without room loses the end of a conversation
// before its beginning.
func TestAnswersAreEvictedFirst(t *testing.T) {
	d := alone(8, 8, 100, 10)
	d.Enqueue(&Request{Input: 34, Output: 31, Blocks: []int32{0, 1}, Answer: []int32{2, 3}})
	for d.active()+len(d.waiting) > 0 {
		d.step()
	}
	c := d.cache
	for want := 4; want >= 1; want-- {
		if got := c.match([]int32{0, 1, 2, 3}); got != want {
			t.Errorf("%d blocks are left, want %d", got, want)
		}
		c.claim(c.spare + 1)
	}
}

// TestTheNewestIsPreempted: answers grow block by block; the one that finds no room takes the
// newest's, which is computed again behind what is left of it in the cache.
func TestTheNewestIsPreempted(t *testing.T) {
	d := alone(4, 5, 100, 10)
	old, young := &Request{ID: 1, Input: 32, Output: 20, Blocks: []int32{0, 1}}, &Request{ID: 2, Input: 32, Output: 20, Blocks: []int32{2, 3}}
	d.Enqueue(old)
	d.Enqueue(young)
	if b, e := d.step(); b.Prompt != 64 || len(e.First) != 2 || d.cache.free != 1 {
		t.Fatalf("%d tokens, %d first ones, %d pages are free", b.Prompt, len(e.First), d.cache.free)
	}
	if b, _ := d.step(); b.Answers != 1 || young.Preempted != 1 || len(d.waiting) != 1 {
		t.Fatalf("%d answers, the young one is preempted %d times", b.Answers, young.Preempted)
	}
	var done []int
	again := 0
	for range 200 {
		b, e := d.step()
		if b.Prompt > 0 {
			again = b.Prompt
		}
		for _, r := range e.Done {
			done = append(done, r.ID)
		}
		if len(e.First) > 0 {
			t.Error("a first token comes twice")
		}
	}
	if len(done) != 2 || done[0] != 1 || again != 33-16 || young.Hit != 0 || old.Preempted != 0 {
		t.Errorf("done %v, %d tokens computed again, %d of them cached at first", done, again, young.Hit)
	}
	if d.cache.free != d.cache.pages {
		t.Errorf("%d of %d pages are free", d.cache.free, d.cache.pages)
	}
}

// TestPromptsWaitForRoom: a prompt runs only when all of it fits, and nobody passes it.
func TestPromptsWaitForRoom(t *testing.T) {
	d := alone(1, 6, 32, 10)
	for i, input := range []int{48, 64, 16} {
		d.Enqueue(&Request{ID: i, Input: input, Output: 2})
	}
	if b, _ := d.step(); b.Prompt != 32 || d.active() != 1 {
		t.Fatalf("%d tokens, %d running", b.Prompt, d.active())
	}
	if b, _ := d.step(); b.Prompt != 16 || d.active() != 1 { // 16 tokens of the batch are left
		t.Fatalf("%d tokens, %d running", b.Prompt, d.active())
	}
	d.step()
	if b, _ := d.step(); b.Prompt != 32 || d.running[0].r.ID != 1 {
		t.Fatalf("%d tokens of %+v", b.Prompt, d.running)
	}
}

// TestWhatNoReplicaHoldsIsRefused: it blocks no engine, and is in no figure.
func TestWhatNoReplicaHoldsIsRefused(t *testing.T) {
	b := NewBuilder("long")
	for i, input := range []int{1000, 3000, 1000} {
		b.Add(float64(i), input, 10, nil)
	}
	hw := H100()
	hw.Capacity = 2048
	for _, closed := range []int{0, 1} {
		res := New(Config{Replicas: 2, Hardware: hw, Policy: Rivals["p2c"], Closed: closed, Warm: 1e-9}, b.Trace(), 1).Run()
		if res.Refused != 1 || len(res.TTFT) != 2 || res.Input != 2000 {
			t.Errorf("%d in flight: %d refused, %d served, %g tokens", closed, res.Refused, len(res.TTFT), res.Input)
		}
	}
}
