//go:build vllm

package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"warmroute/lab/simulator"
	"warmroute/render/testkit/must"
)

// TestSchedulerSimulated gives the scheduler of lab/simulator the requests that vLLM's own
// got, at the same steps, and wants the same batches, admissions in the same order, the same
// preemptions and the same hits.
func TestSchedulerSimulated(t *testing.T) {
	t.Parallel()
	for _, s := range schedulers[:2] {
		for i, config := range []string{"full-queue", "full-queue-places", "full-queue-chunks"} {
			t.Run(s.name+"/"+config, func(t *testing.T) {
				t.Parallel()
				d := drive{t: t, python: s.python, path: s.path}
				seed := *schedulerSeed/2*2 + 2*i // even ones have one batch in flight
				sim := simulated{t: t, ids: map[string]int32{}, open: map[string]*simulator.Request{}, hits: map[string]int{}, preempted: map[string]int{}}
				for line := range bytes.Lines([]byte(d.output("--script", "--requests", "200", fmt.Sprintf("%s:%d", config, seed)))) {
					sim.line(line)
				}
				sim.end(config != "full-queue-places")
			})
		}
	}
}

// simulated is the simulator's scheduler under a script of vLLM's.
type simulated struct {
	t         *testing.T
	s         simulator.Scheduler
	ids       map[string]int32 // tokens up to the end of a block → its id
	open      map[string]*simulator.Request
	names     []string // of requests, by id
	hits      map[string]int
	preempted map[string]int
	step      int
	began     bool
	batch     simulator.Batch
	ended     simulator.Ended
}

type scripted struct {
	Blocks int `json:"num_gpu_blocks"`
	Batch  int `json:"max_num_batched_tokens"`
	Seqs   int `json:"max_num_seqs"`
	Submit *struct {
		ID     string   `json:"id"`
		Tokens []uint32 `json:"tokens"`
		Answer []uint32 `json:"answer"`
		Most   int      `json:"max_tokens"`
	} `json:"submit"`
	Step      int `json:"step"`
	Scheduled *struct {
		Tokens    int      `json:"tokens"`
		Admitted  []string `json:"admitted"`
		Preempted []string `json:"preempted"`
	} `json:"scheduled"`
	Query *struct {
		ID string `json:"id"`
	} `json:"query"`
	Cached  int  `json:"cached"`
	Resumed bool `json:"resumed"`
}

const simulatedBlock = 16

func (s *simulated) line(text []byte) {
	var l scripted
	must.Do(s.t, json.Unmarshal(text, &l))
	switch {
	case l.Blocks > 0: // one of them is vLLM's null block
		hw := simulator.Hardware{Capacity: (l.Blocks - 1) * simulatedBlock, Budget: l.Batch, Sequences: l.Seqs}
		s.s = simulator.NewScheduler(hw, 1<<16)
	case l.Submit != nil:
		s.finish()
		r := &simulator.Request{ID: len(s.names), Input: len(l.Submit.Tokens), Output: l.Submit.Most}
		blocks := s.blocks(slices.Concat(l.Submit.Tokens, l.Submit.Answer))
		full := r.Input / simulatedBlock
		r.Blocks, r.Answer = blocks[:full], blocks[full:]
		s.open[l.Submit.ID], s.names = r, append(s.names, l.Submit.ID)
		s.s.Enqueue(r)
	case l.Step > 0:
		s.finish()
		s.step, s.began = l.Step, true
		s.batch, _ = s.s.Begin()
		s.ended = s.s.End()
	case l.Scheduled != nil:
		var admitted []string
		for _, r := range s.ended.Admitted {
			admitted = append(admitted, s.names[r.ID])
		}
		for _, id := range l.Scheduled.Preempted {
			s.preempted[id]++
		}
		if got := s.batch.Prompt + s.batch.Answers; got != l.Scheduled.Tokens || !slices.Equal(admitted, l.Scheduled.Admitted) {
			s.t.Fatalf("step %d: %d tokens, admitted %v; vLLM %+v", s.step, got, admitted, *l.Scheduled)
		}
	case l.Query != nil && !l.Resumed: // the last of these is that of its admission
		s.hits[l.Query.ID] = l.Cached
	}
}

// blocks returns the ids of the full blocks of tokens.
func (s *simulated) blocks(tokens []uint32) (ids []int32) {
	for end := simulatedBlock; end <= len(tokens); end += simulatedBlock {
		key := fmt.Sprint(tokens[:end])
		id, ok := s.ids[key]
		if !ok {
			id = int32(len(s.ids))
			s.ids[key] = id
		}
		ids = append(ids, id)
	}
	return ids
}

// finish compares the preemptions of the step before.
func (s *simulated) finish() {
	if !s.began {
		return
	}
	s.began = false
	for id, r := range s.open {
		if r.Preempted != s.preempted[id] {
			s.t.Fatalf("step %d: %s is preempted %d times, in vLLM %d", s.step, id, r.Preempted, s.preempted[id])
		}
	}
}

// end compares the hits.
func (s *simulated) end(tight bool) {
	s.finish()
	cached, preempted := 0, 0
	for id, r := range s.open {
		if r.Hit != s.hits[id] {
			s.t.Errorf("%s: %d of %d tokens cached, in vLLM %d", id, r.Hit, r.Input, s.hits[id])
		}
		cached, preempted = cached+r.Hit, preempted+r.Preempted
	}
	if p := s.s.Load(); p.Waiting+p.Running > 0 || cached == 0 || tight && preempted < 10 {
		s.t.Errorf("%d wait and %d run at the end; %d tokens were cached, %d preemptions", p.Waiting, p.Running, cached, preempted)
	}
	s.t.Logf("%d requests, %d steps, %d tokens cached, %d preemptions", len(s.open), s.step, cached, preempted)
}
