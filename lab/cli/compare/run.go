package compare

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// Options configures a comparison.
type Options struct {
	Workloads []string // names of simulator.Workloads
	Rivals    []string // names of simulator.Rivals; nil = Rivals
	Seeds     []uint64
	Policy    policy.Config // of this router
	Share     float64       // of each cell's requests
	Jobs      int           // runs at a time
	JSON      bool          // lines alone, without the table
	Progress  io.Writer     // nil = none
}

// Rivals are the policies to compare with: what other routers do today, and bounds that they
// should pass.
var Rivals = []string{"least", "gie", "llm-d", "llm-d-tokens", "llm-d-requests", "dynamo", "lmetric", "ray", "vllm-router", "sglang", "aibrix", "localai"}

// ours is this router's name.
const ours = "warmroute"

// Line is the outcome of a run.
type Line struct {
	Workload   string  `json:"workload"`
	Load       string  `json:"load"`
	Policy     string  `json:"policy"`
	Seed       uint64  `json:"seed"`
	Throughput float64 `json:"throughput"` // requests per second
	Mean       float64 `json:"ttft_mean"`
	P99        float64 `json:"ttft_p99"`
	Hit        float64 `json:"hit_rate"`
}

func (o Options) withDefaults() (Options, error) {
	if o.Rivals == nil {
		o.Rivals = Rivals
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	for _, name := range o.Workloads {
		if simulator.Workloads[name] == nil {
			return o, fmt.Errorf("-workloads: there is none called %q, only %v", name, simulator.WorkloadNames)
		}
	}
	for _, name := range o.Rivals {
		if simulator.Rivals[name] == nil || name == "oracle" {
			return o, fmt.Errorf("-policies: there is none called %q, only %v", name, slices.Sorted(maps.Keys(simulator.Rivals)))
		}
	}
	if len(o.Workloads) == 0 || len(o.Seeds) == 0 || o.Share <= 0 || o.Share > 1 {
		return o, fmt.Errorf("%d workloads, %d seeds and a share of %g: there must be some, and the share is from 0 to 1", len(o.Workloads), len(o.Seeds), o.Share)
	}
	return o, nil
}

// Run compares, and writes to out.
func Run(ctx context.Context, out io.Writer, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	var cells []simulator.Cell
	for _, name := range o.Workloads {
		cells = append(cells, simulator.Workloads[name](o.Share)...)
	}
	lines, err := o.runs(ctx, cells)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	encoder := json.NewEncoder(out)
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			return fmt.Errorf("compare: %w", err)
		}
	}
	if o.JSON {
		return nil
	}
	return table(out, o.Rivals, cells, lines)
}

// runs returns the outcome of each policy in each cell with each seed, in this order from the
// last to the first.
func (o Options) runs(ctx context.Context, cells []simulator.Cell) ([]Line, error) {
	policies := append([]string{ours}, o.Rivals...)
	lines := make([]Line, len(cells)*len(o.Seeds)*len(policies))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, o.Jobs))
	var done atomic.Int64
	for i := range cells {
		for k, seed := range o.Seeds {
			at := (i*len(o.Seeds) + k) * len(policies)
			group.Go(func() error {
				c := &cells[i]
				t := c.Trace(seed)
				for n, name := range policies {
					if err := ctx.Err(); err != nil {
						return err
					}
					r, err := o.one(c, t, name, seed)
					if err != nil {
						return err
					}
					lines[at+n] = Line{c.Workload, c.Load, name, seed, r.Throughput, r.Mean, r.P99, r.Hit}
					if c.Rate == 0 { // without beginning and end
						lines[at+n].Throughput = r.Rate
					}
					fmt.Fprintf(o.Progress, "%d of %d: %s, %s, %s, seed %d\n", done.Add(1), len(lines), c.Workload, c.Load, name, seed)
				}
				return nil
			})
		}
	}
	return lines, group.Wait()
}

func (o Options) one(c *simulator.Cell, t *simulator.Trace, name string, seed uint64) (simulator.Result, error) {
	if name != ours {
		return c.Run(t, seed, simulator.Rivals[name]), nil
	}
	b, err := brain.NewPolicy(brain.Options{Replicas: c.Replicas, Block: t.Block, Capacity: c.Hardware.Capacity, Seed: seed, Policy: o.Policy})
	if err != nil {
		return simulator.Result{}, err
	}
	return c.Run(t, seed, func(*simulator.Sim) simulator.Policy { return b }), nil
}
