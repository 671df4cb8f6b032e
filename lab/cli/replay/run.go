package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// Options configures a replay.
type Options struct {
	Replicas int           // default 4
	Policy   policy.Config // of this router
	Rivals   []string      // names of simulator.Rivals; default p2c, least, localai, llm-d, dynamo
	Speedup  float64       // factor on the log's rate of arrivals; default 1
	Seconds  bool          // timestamps are seconds, not milliseconds
	Capacity int           // tokens of KV cache per replica; default an H100's with an 8B model
	Slower   float64       // factor on the engine's step times against that; default 1
	Plot     io.Writer     // SVG; nil = none
	Progress io.Writer     // nil = none
}

func (o Options) unit() float64 {
	if o.Seconds {
		return 1
	}
	return 1e-3
}

func (o Options) withDefaults() (Options, error) {
	if o.Replicas == 0 {
		o.Replicas = 4
	}
	if len(o.Rivals) == 0 {
		o.Rivals = []string{"p2c", "least", "localai", "llm-d", "dynamo"}
	}
	if o.Speedup == 0 {
		o.Speedup = 1
	}
	if o.Slower == 0 {
		o.Slower = 1
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	var errs []error
	if o.Replicas < 1 || o.Replicas > 64 {
		errs = append(errs, fmt.Errorf("replicas: %d is not from 1 to 64", o.Replicas))
	}
	if o.Speedup <= 0 || o.Slower <= 0 || o.Capacity < 0 {
		errs = append(errs, fmt.Errorf("speedup %g, slower %g and capacity %d must be positive", o.Speedup, o.Slower, o.Capacity))
	}
	for _, name := range o.Rivals {
		if simulator.Rivals[name] == nil {
			errs = append(errs, fmt.Errorf("policies: there is none called %q", name))
		}
	}
	return o, errors.Join(errs...)
}

func (o Options) hardware() simulator.Hardware {
	hw := simulator.H100()
	if o.Capacity > 0 {
		hw.Capacity = o.Capacity
	}
	for _, v := range []*float64{&hw.PrefillToken, &hw.PrefillPair, &hw.DecodeToken, &hw.Weights, &hw.Step, &hw.Sequence} {
		*v *= o.Slower
	}
	return hw
}

// outcome is the result of one policy's run.
type outcome struct {
	name string
	simulator.Result
}

// Run replays the log in and writes a table to out. Each line of the log is a JSON object
// with timestamp, either body (and path) or hash_ids and input_length, and output_length.
// Run returns early if ctx ends.
func Run(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	trace, err := read(in, o, func(n int) { fmt.Fprintf(o.Progress, "read %d requests\n", n) })
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	var outcomes []outcome
	for _, name := range append([]string{"warmroute"}, o.Rivals...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := o.run(name, trace)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		outcomes = append(outcomes, outcome{name, r})
	}
	if err := table(out, trace, o, outcomes); err != nil {
		return err
	}
	if o.Plot != nil {
		return plot(o.Plot, outcomes)
	}
	return nil
}

func (o Options) run(name string, t *simulator.Trace) (simulator.Result, error) {
	c := simulator.Config{
		Replicas: o.Replicas, Hardware: o.hardware(), Policy: simulator.Rivals[name], Seed: 1,
		Progress: func(done, of int) { fmt.Fprintf(o.Progress, "%s: %d of %d requests\n", name, done, of) },
	}
	if name == "warmroute" {
		p, err := brain.NewPolicy(brain.Options{Replicas: o.Replicas, Block: simulator.Block, Policy: o.Policy})
		if err != nil {
			return simulator.Result{}, err
		}
		c.Policy = func(*simulator.Sim) simulator.Policy { return p }
	}
	rate := float64(len(t.Requests)) / max(t.Duration, 1e-3) * o.Speedup
	return simulator.New(c, t, rate).Run(), nil
}

func table(out io.Writer, t *simulator.Trace, o Options, outcomes []outcome) error {
	fmt.Fprintf(out, "%d requests in %.0f s on %d replicas; times to first token, simulated\n", len(t.Requests), t.Duration/o.Speedup, o.Replicas)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tcached\tmean\tp50\tp90\tp99\tmost/mean work\tbusy\t")
	for _, r := range outcomes {
		fmt.Fprintf(w, "%s\t%.1f %%\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.2f\t%.0f %%\t\n", r.name, 100*r.Hit, r.Mean, r.P50, r.P90, r.P99, r.Imbalance, 100*r.Busy)
	}
	return w.Flush()
}
