package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// Options configures a replay.
type Options struct {
	Replicas    []int         // numbers of replicas, simulated one after the other; default: the trace file's number, else 4
	Policy      policy.Config // of this router
	Rivals      []string      // names of simulator.Rivals; default p2c, least, localai, llm-d, dynamo
	Speedup     float64       // factor on the log's rate of arrivals; default 1
	Seconds     bool          // timestamps are seconds, not milliseconds
	Capacity    int           // tokens of KV cache per replica; default as a trace file says, else an H100's with an 8B model
	Slower      float64       // factor on the engine's step times against that; default 1
	PrefillRate float64       // tokens per second, in place of Slower; default as a trace file shows
	DecodeStep  float64       // ms between two tokens of an answer; default as a trace file shows, else in proportion
	Output      int           // tokens of an answer, where the log does not say; default as a trace file shows, else 300
	Block       int           // tokens of a block of a trace file in the simulation, a multiple of the recorded one; 0 = that
	Model       string        // of a trace file; default the one with the most tokens
	Warm        float64       // share of the first requests that do not count
	Hold        float64       // of a trace file: simulate held requests with this sessions.share, in place of policies; 0 = do not
	GPUs        int           // of a replica; default 1
	Price       float64       // of a GPU hour; 0 = none
	Plot        io.Writer     // SVG; nil = none
	Progress    io.Writer     // nil = none
}

func (o Options) unit() float64 {
	if o.Seconds {
		return 1
	}
	return 1e-3
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Rivals) == 0 {
		o.Rivals = []string{"p2c", "least", "localai", "llm-d", "dynamo"}
	}
	for _, v := range []*float64{&o.Speedup, &o.Slower} {
		if *v == 0 {
			*v = 1
		}
	}
	if o.GPUs == 0 {
		o.GPUs = 1
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	var errs []error
	for _, n := range o.Replicas {
		if n < 1 || n > maxReplicas {
			errs = append(errs, fmt.Errorf("replicas: %d is not from 1 to %d", n, maxReplicas))
		}
	}
	if o.Speedup <= 0 || o.Slower <= 0 || o.Capacity < 0 {
		errs = append(errs, fmt.Errorf("speedup %g, slower %g and capacity %d must be positive", o.Speedup, o.Slower, o.Capacity))
	}
	if o.Output > maxOutput || o.PrefillRate < 0 || o.DecodeStep < 0 || o.Output < 0 || o.Block < 0 || o.GPUs < 1 || o.Price < 0 {
		errs = append(errs, fmt.Errorf("prefill rate %g, decode step %g, output %d, block %d, GPUs %d and price %g must not be negative", o.PrefillRate, o.DecodeStep, o.Output, o.Block, o.GPUs, o.Price))
	}
	if !(o.Warm >= 0 && o.Warm < 1) || !(o.Hold >= 0 && o.Hold < 1) {
		errs = append(errs, fmt.Errorf("warm: %g and hold: %g are not from 0 to below 1", o.Warm, o.Hold))
	}
	for _, name := range o.Rivals {
		if simulator.Rivals[name] == nil {
			errs = append(errs, fmt.Errorf("policies: there is none called %q", name))
		}
	}
	return o, errors.Join(errs...)
}

// maxReplicas is the most that the simulator has room for.
const maxReplicas = 64

// maxNodes bounds the blocks that the simulated replicas can have, all together: 16 bytes
// each.
const maxNodes = 256 << 20

// ours is this router's name in tables.
const ours = "warmroute"

// outcome is the result of one policy's run.
type outcome struct {
	name     string
	replicas int
	simulator.Result
}

// Run replays the inputs and writes a table to out. They are of one kind: the router's
// trace files, the oldest first; Envoy's access log, which is only summed up; or one log
// each of whose lines is a JSON object with timestamp, either body (and path) or hash_ids
// and input_length, and output_length. Any may be compressed with gzip. Run returns early
// if ctx ends.
func Run(ctx context.Context, in []io.Reader, out io.Writer, o Options) error {
	if err := run(ctx, in, out, o); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

func run(ctx context.Context, in []io.Reader, out io.Writer, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	in, kind, err := open(in)
	if err != nil {
		return err
	}
	progress := func(n int) { fmt.Fprintf(o.Progress, "read %d requests\n", n) }
	if kind != kindTrace && o.Hold > 0 {
		return errors.New("hold: only the router's trace file shows sessions and their times")
	}
	switch kind {
	case kindAccess:
		a, err := readAccess(in, progress)
		if err != nil {
			return err
		}
		return a.report(out, o)
	case kindTrace:
		r, err := readTraces(in, progress)
		if err != nil {
			return err
		}
		return o.replayTrace(ctx, r, out)
	}
	if len(in) > 1 {
		return errors.New("only one log of requests can be read")
	}
	t, err := read(in[0], o, progress)
	if err != nil {
		return err
	}
	if len(o.Replicas) == 0 {
		o.Replicas = []int{4}
	}
	hw, speed := o.engine(0, pace{})
	return o.replay(ctx, t, hw, []string{speed}, out)
}

// replayTrace replays a trace file, with what it says about the fleet where o does not.
func (o Options) replayTrace(ctx context.Context, r *recording, out io.Writer) error {
	if err := r.choose(o.Model); err != nil {
		return err
	}
	block := cmp.Or(o.Block, r.block)
	if block%r.block != 0 {
		return fmt.Errorf("block: %d is not a multiple of the recorded blocks of %d tokens", block, r.block)
	}
	t, a, err := r.trace(block, o.Output)
	if err != nil {
		return err
	}
	replicas, capacity := r.holders()
	if len(o.Replicas) == 0 {
		o.Replicas = []int{min(maxReplicas, cmp.Or(replicas, 4))}
	}
	seen := r.pace(a)
	if err := o.holdable(capacity, seen); err != nil && o.Hold > 0 {
		return err
	}
	hw, speed := o.engine(capacity, seen)
	if o.Hold > 0 {
		return o.hold(ctx, r, t, a, hw, speed, out)
	}
	notes := []string{fmt.Sprintf("model %q, recorded on %d replicas; %d requests of other models, that failed or without token counts are left out", r.model, replicas, r.left)}
	notes = append(notes, "recorded: "+r.recorded(int(o.Warm*float64(len(r.all)))))
	if a.before*100 > int(totalInput(t)) {
		notes = append(notes, fmt.Sprintf("%.0f %% of the prompt tokens were cached before the trace began; the simulation computes them once", 100*float64(a.before)/totalInput(t)))
	}
	answer := fmt.Sprintf("answers of %d tokens where the trace does not show them", cmp.Or(o.Output, a.typical, typicalOutput))
	notes = append(notes, speed, answer)
	return o.replay(ctx, t, hw, notes, out)
}

// dropTooLong takes the requests out of t that no replica could ever begin, and returns
// their number.
func dropTooLong(t *simulator.Trace, capacity int) int {
	before := len(t.Requests)
	t.Requests = slices.DeleteFunc(t.Requests, func(r simulator.Request) bool {
		return max(r.Input, len(r.Blocks)*cmp.Or(t.Block, simulator.Block))+r.Output > capacity
	})
	return before - len(t.Requests)
}

func totalInput(t *simulator.Trace) (n float64) {
	for i := range t.Requests {
		n += float64(t.Requests[i].Input)
	}
	return n
}

// replay simulates every policy with every number of replicas.
func (o Options) replay(ctx context.Context, t *simulator.Trace, hw simulator.Hardware, notes []string, out io.Writer) error {
	if left := dropTooLong(t, hw.Capacity); left > 0 {
		notes = append(notes, fmt.Sprintf("%d requests are longer than a replica's KV cache and are left out", left))
	}
	if len(t.Requests) == 0 {
		return errors.New("no request fits into a replica's KV cache: set -capacity")
	}
	if most := slices.Max(o.Replicas); t.Blocks*most > maxNodes {
		return fmt.Errorf("%d different blocks on %d replicas are more than %d: set -block to larger blocks, or give fewer requests", t.Blocks, most, maxNodes)
	}
	var outcomes []outcome
	for _, n := range o.Replicas {
		for _, name := range append([]string{ours}, o.Rivals...) {
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := o.simulate(name, n, t, hw)
			if err != nil {
				return err
			}
			outcomes = append(outcomes, outcome{name, n, r})
		}
	}
	w := &lines{to: out}
	w.say("%d requests in %.0f s; times to first token, simulated", len(t.Requests), t.Duration/o.Speedup)
	for _, note := range notes {
		w.say("%s", note)
	}
	w.say("prefill and GPU hours: of the prefill alone, %s; hours and cost in 30 days of such traffic", o.terms())
	if w.err != nil {
		return w.err
	}
	if err := o.table(out, t, outcomes); err != nil {
		return err
	}
	if o.Plot != nil {
		return o.plot(t, outcomes)
	}
	return nil
}

func (o Options) simulate(name string, replicas int, t *simulator.Trace, hw simulator.Hardware) (simulator.Result, error) {
	c := simulator.Config{
		Replicas: replicas, Hardware: hw, Policy: simulator.Rivals[name], Seed: 1, Warm: max(1e-9, o.Warm), // 0 would be the simulator's default
		Progress: func(done, of int) { fmt.Fprintf(o.Progress, "%s: %d of %d requests\n", name, done, of) },
	}
	if name == ours {
		block := cmp.Or(t.Block, simulator.Block)
		p, err := brain.NewPolicy(brain.Options{Replicas: replicas, Block: block, Policy: o.Policy})
		if err != nil {
			return simulator.Result{}, err
		}
		c.Policy = func(*simulator.Sim) simulator.Policy { return p }
	}
	rate := float64(len(t.Requests)) / max(t.Duration, 1e-3) * o.Speedup
	return simulator.New(c, t, rate).Run(), nil
}
