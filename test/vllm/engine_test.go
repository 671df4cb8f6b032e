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
	"warmroute/render/testkit/must"
)

var (
	agentsIn    = flag.String("agents.in", "", "file of sessions; default: they are generated")
	agentsHours = flag.Float64("agents.hours", 0.25, "hours that count")
	agentsCells = flag.String("agents.cells", "16000:24,6000:16", "prefill rates and numbers of sessions")
	agentsSeeds = flag.Int("agents.seeds", 3, "orders of the sessions")
)

// TestAgents runs cells of `lab agents` with vLLM's own scheduler and KV cache manager. With first
// come the simulator must complete as many requests within a fiftieth, with the same hit rate within
// 0.02. What waits is ordered by milliseconds, and one order leads to another: with holding, all
// seeds together must complete as many within a tenth, with the same hit rate within 0.05. Past the
// cliff holding must complete a fifth more than first come does.
func TestAgents(t *testing.T) {
	t.Parallel()
	var recorded [][]agents.Turn
	if *agentsIn != "" {
		recorded = must.Get(agents.Load(*agentsIn))(t)
	}
	for i, cell := range strings.Split(*agentsCells, ",") {
		v := schedulers[i%2]
		t.Run(v.name+"/"+cell, func(t *testing.T) {
			t.Parallel()
			rate, clients, _ := strings.Cut(cell, ":")
			o := agents.Options{All: recorded, Tokens: 640_000, Replicas: 1, Hours: *agentsHours, Share: 0.1}
			o.Rate = must.Get(strconv.ParseFloat(rate, 64))(t)
			o.Clients = must.Get(strconv.Atoi(clients))(t)
			today, hold := ofAgents(t, v.python, v.path, "today", o, 0.02, 0.02), ofAgents(t, v.python, v.path, "hold", o, 0.1, 0.05)
			if today.HitRate < 0.3 && 10*hold.Completed < 12*today.Completed {
				t.Errorf("hold %+v, first come %+v", hold, today)
			}
		})
	}
}

// ofAgents returns a policy's cell with vLLM's scheduler, of all seeds together, after a comparison
// with the simulator's: by the share of requests that it may complete less or more, and the
// difference of the hit rates.
func ofAgents(t *testing.T, python, path, policy string, o agents.Options, share, hits float64) (sum agents.Cell) {
	t.Helper()
	var simulated agents.Cell
	run := func(sum *agents.Cell, o agents.Options) {
		c := must.Get(agents.Run(t.Context(), policy, o))(t)
		t.Logf("rate %.0f, seed %d, simulated %v: %+v", o.Rate, o.Seed, o.Engine == nil, c)
		sum.Completed += c.Completed
		sum.HitRate += c.HitRate / float64(*agentsSeeds)
	}
	for o.Seed = 1; o.Seed <= uint64(*agentsSeeds); o.Seed++ {
		if *agentsIn == "" {
			o.All = agents.Generate(420, o.Seed)
		}
		run(&simulated, o)
		own := o
		own.Engine = func(hw simulator.Hardware, block int) simulator.Engine {
			return startEngine(t, python, path, hw, block)
		}
		run(&sum, own)
	}
	if sum.Completed == 0 || math.Abs(float64(sum.Completed-simulated.Completed)) > share*float64(sum.Completed) || math.Abs(sum.HitRate-simulated.HitRate) > hits {
		t.Errorf("%s: simulated %+v, vLLM's %+v", policy, simulated, sum)
	}
	return sum
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
	to := must.Get(cmd.StdinPipe())(t)
	from := must.Get(cmd.StdoutPipe())(t)
	var said strings.Builder
	cmd.Stderr = &said
	must.Do(t, cmd.Start())
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
	text := must.Get(json.Marshal(e.next))(e.t)
	e.next = work{}
	must.Get(e.to.Write(append(text, '\n')))(e.t)
	line := must.Get(e.from.ReadBytes('\n'))(e.t)
	e.step = stepped{}
	must.Do(e.t, json.Unmarshal(line, &e.step))
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
