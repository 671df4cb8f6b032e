//go:build vllm

package vllm

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmroute/lab/cli/agents"
	"warmroute/lab/simulator"
)

var (
	agentsIn    = flag.String("agents.in", "", "file of sessions; default: they are generated")
	agentsHours = flag.Float64("agents.hours", 0.1, "hours that count")
	agentsCells = flag.String("agents.cells", "16000:24,6000:16", "prefill rates and numbers of sessions")
	agentsSeed  = flag.Uint64("agents.seed", 1, "order of the sessions")
)

// TestAgents runs cells of `lab agents` with vLLM's own scheduler and KV cache manager. The
// simulator must complete as many requests within a fiftieth, with the same hit rate within 0.02;
// and past the cliff holding must complete a fifth more than first come does.
func TestAgents(t *testing.T) {
	t.Parallel()
	all := agents.Generate(420, *agentsSeed)
	if *agentsIn != "" {
		var err error
		if all, err = agents.Load(*agentsIn); err != nil {
			t.Fatal(err)
		}
	}
	for i, cell := range strings.Split(*agentsCells, ",") {
		v := schedulers[i%2]
		t.Run(v.name+"/"+cell, func(t *testing.T) {
			t.Parallel()
			rate, clients, _ := strings.Cut(cell, ":")
			o := agents.Options{All: all, Tokens: 640_000, Replicas: 1, Hours: *agentsHours, Seed: *agentsSeed, Share: 0.1}
			var err error
			if o.Rate, err = strconv.ParseFloat(rate, 64); err != nil {
				t.Fatal(err)
			}
			if o.Clients, err = strconv.Atoi(clients); err != nil {
				t.Fatal(err)
			}
			today, hold := ofAgents(t, v.python, v.path, "today", o), ofAgents(t, v.python, v.path, "hold", o)
			if today.HitRate < 0.3 && 10*hold.Completed < 12*today.Completed {
				t.Errorf("hold %+v, first come %+v", hold, today)
			}
		})
	}
}

// ofAgents returns a policy's cell with vLLM's scheduler, after a comparison with the simulator's.
func ofAgents(t *testing.T, python, path, policy string, o agents.Options) agents.Cell {
	t.Helper()
	simulated, err := agents.Run(t.Context(), policy, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Engine = func(hw simulator.Hardware, block int) simulator.Engine {
		return startEngine(t, python, path, hw, block)
	}
	c, err := agents.Run(t.Context(), policy, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rate %.0f, vLLM's  %+v", o.Rate, c)
	t.Logf("rate %.0f, simulated %+v", o.Rate, simulated)
	if c.Completed == 0 || 50*max(c.Completed, simulated.Completed) > 51*min(c.Completed, simulated.Completed) || math.Abs(c.HitRate-simulated.HitRate) > 0.02 {
		t.Errorf("%s: simulated %+v, vLLM's %+v", policy, simulated, c)
	}
	return c
}

// engine is vLLM's scheduler in a process of its own (engine.py).
type engine struct {
	t     *testing.T
	to    io.Writer
	from  *bufio.Reader
	block int
	open  map[int]*simulator.Request
	next  work
	step  stepped
}

// work is a line to the process, of the time since the step before.
type work struct {
	Abort []int   `json:"abort"`
	Add   []added `json:"add"`
}

type added struct {
	ID     int     `json:"id"`
	Input  int     `json:"input"`
	Output int     `json:"output"`
	Blocks []int32 `json:"blocks"`
}

// stepped is a line from the process.
type stepped struct {
	Prompt, Answers, Running int
	First, Done              []int
	Hits                     map[int]int
	Stored, Removed          []int32
	Waits, Runs              int
	Usage                    float64
}

func startEngine(t *testing.T, python, path string, hw simulator.Hardware, block int) *engine {
	t.Helper()
	cmd := ofVLLM(t, python, path, "engine.py", fmt.Sprint(hw.Capacity), fmt.Sprint(block), fmt.Sprint(hw.Budget), fmt.Sprint(hw.Sequences))
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		to.Close()
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Errorf("%v\n%s", err, said.String())
		}
	})
	return &engine{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20), block: block, open: map[int]*simulator.Request{}}
}

// Enqueue implements simulator.Scheduler.
func (e *engine) Enqueue(r *simulator.Request) {
	e.open[r.ID] = r
	e.next.Add = append(e.next.Add, added{ID: r.ID, Input: r.Input, Output: r.Output, Blocks: r.Blocks[:r.Input/e.block]})
}

// Abort implements simulator.Engine.
func (e *engine) Abort(r *simulator.Request) {
	delete(e.open, r.ID)
	n := len(e.next.Add)
	if e.next.Add = slices.DeleteFunc(e.next.Add, func(a added) bool { return a.ID == r.ID }); len(e.next.Add) == n {
		e.next.Abort = append(e.next.Abort, r.ID)
	}
}

// Begin implements simulator.Scheduler. The process ends the step, too: nothing that comes
// meanwhile is in it.
func (e *engine) Begin() (simulator.Batch, bool) {
	text, err := json.Marshal(e.next)
	if err != nil {
		e.t.Fatal(err)
	}
	e.next = work{}
	if _, err := e.to.Write(append(text, '\n')); err != nil {
		e.t.Fatal(err)
	}
	line, err := e.from.ReadBytes('\n')
	if err != nil {
		e.t.Fatal(err)
	}
	e.step = stepped{}
	if err := json.Unmarshal(line, &e.step); err != nil {
		e.t.Fatal(err)
	}
	for id, n := range e.step.Hits {
		e.open[id].Hit = n
	}
	s := &e.step
	return simulator.Batch{Prompt: s.Prompt, Answers: s.Answers, Running: s.Running}, s.Running > 0
}

// End implements simulator.Scheduler.
func (e *engine) End() (ended simulator.Ended) {
	for _, id := range e.step.First {
		ended.First = append(ended.First, e.open[id])
	}
	for _, id := range e.step.Done {
		ended.Done = append(ended.Done, e.open[id])
		delete(e.open, id)
	}
	ended.Stored, ended.Removed = e.step.Stored, e.step.Removed
	return ended
}

// Load implements simulator.Scheduler.
func (e *engine) Load() simulator.Page {
	return simulator.Page{Waiting: e.step.Waits + len(e.next.Add), Running: e.step.Runs, KVUsage: e.step.Usage}
}
