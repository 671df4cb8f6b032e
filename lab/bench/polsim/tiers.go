package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// tierShare is the capacity of the simulated tier, for each replica, in capacities of its
// GPU.
const tierShare = 4

// worth is a constant value of a token below the GPU, relative to one on it.
type worth struct {
	name string
	of   float64
}

// worths are those that routers use, by whether the tier is a store of all replicas.
var worths = map[bool][]worth{
	false: {{"0.75 (Dynamo)", 0.75}, {"0.8 (llm-d)", 0.8}},
	true:  {{"0.75", 0.75}, {"0.5 (Dynamo)", 0.5}, {"0.4 (llm-d, files)", 0.4}, {"0.2 (llm-d, objects)", 0.2}},
}

// compareTiers prints the mean times to first token with learned prices of loads and with
// constant ones, for CPU memory and for a store of all replicas.
func (o *options) compareTiers(cells []cell, out, log io.Writer) error {
	speeds, err := numbers(o.tiers, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err != nil {
		return fmt.Errorf("-tiers: %w", err)
	}
	for _, shared := range []bool{false, true} {
		var runs []cell
		for _, c := range cells {
			for _, v := range speeds {
				c.tier = simulator.Tier{Capacity: tierShare * o.hardware().Capacity, Token: simulator.KVBytes / (v * 1e9), Shared: shared}
				runs = append(runs, c)
			}
		}
		if err := o.tierTable(runs, worths[shared], out, log); err != nil {
			return err
		}
	}
	return nil
}

// The runs of a cell behind those with constants.
const (
	learned  = iota // prices are learned from first tokens
	gpuAlone        // there is no tier
	noCaches        // nor any common prefix
	tierRuns
)

// tierTable prints the table of one kind of tier. A row is the mean of all seeds.
func (o *options) tierTable(runs []cell, worths []worth, out, log io.Writer) error {
	n := len(worths)
	results, err := o.grid(n+tierRuns, runs, func(i int, c cell) (simulator.Result, error) {
		settings, name := "{}", "learned"
		switch i - n {
		case learned:
		case gpuAlone:
			name, c.tier = "GPU alone", simulator.Tier{Token: c.tier.Token}
		case noCaches:
			name, c.trace, c.tier = "without caches", uncached(c.trace), simulator.Tier{Token: c.tier.Token}
		default: // a token costs the rest of its prefill
			name = worths[i].name
			settings = fmt.Sprintf(`{"ttft":{"load_token":%g}}`, (1-worths[i].of)*o.hardware().PrefillToken)
		}
		r, err := o.tiered(c, settings)
		o.log(log, c, fmt.Sprintf("%g GB/s, %s", c.gigabytes(), name), r)
		return r, err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| trace | replicas | load | tier | GB/s |")
	for _, w := range worths {
		fmt.Fprintf(out, " %s |", w.name)
	}
	fmt.Fprintf(out, " learned | over the best | prefill, most over mean | GPU alone | without caches | time, most over mean | GPU alone | without caches |\n|%s\n", strings.Repeat("---|", n+13))
	sums, rows, worst := make([]float64, n), 0, 0.0
	for k, c := range runs {
		if c.seed != 1 {
			continue
		}
		same := seedsOf(runs, k)
		ttft := func(i int) float64 { return mean(same, func(k int) float64 { return results[i][k].Mean }) }
		kind, best, ours := "CPU memory", math.Inf(1), ttft(n+learned)
		if c.tier.Shared {
			kind = "shared store"
		}
		fmt.Fprintf(out, "| %s | %d | %g | %s | %g |", c.trace.Name, c.replicas, c.load, kind, c.gigabytes())
		for i := range worths {
			fmt.Fprintf(out, " %.3f |", ttft(i))
			best, sums[i] = min(best, ttft(i)), sums[i]+math.Log(ttft(i)/ours)
		}
		rows, worst = rows+1, max(worst, ours/best)
		fmt.Fprintf(out, " %.3f | %.3f |", ours, ours/best)
		for _, i := range []int{learned, gpuAlone, noCaches} {
			fmt.Fprintf(out, " %.3f |", mean(same, func(k int) float64 { return results[n+i][k].Imbalance }))
		}
		for _, i := range []int{learned, gpuAlone, noCaches} {
			fmt.Fprintf(out, " %.3f |", mean(same, func(k int) float64 { return results[n+i][k].Uneven }))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "\nMean times in seconds. The learned prices are at worst %.3f of the best constant. Over all rows, the constants take", worst)
	for i, w := range worths {
		fmt.Fprintf(out, " %.3f (%s)", math.Exp(sums[i]/float64(rows)), w.name)
	}
	fmt.Fprintf(out, " times as long.\n\n")
	return nil
}

// gigabytes returns the tier's bandwidth in GB/s.
func (c *cell) gigabytes() float64 { return math.Round(simulator.KVBytes/c.tier.Token/1e7) / 100 }

// tiered runs the router's decision on a cell with a tier, by settings in JSON.
func (o *options) tiered(c cell, settings string) (simulator.Result, error) {
	one := *o
	one.settings = settings
	b, err := one.brain(c, brain.OneGroup)
	if err != nil {
		return simulator.Result{}, err
	}
	b.Store = c.tier.Shared
	p, err := brain.NewPolicy(b)
	if err != nil {
		return simulator.Result{}, err
	}
	cfg := o.of(c)
	cfg.Tier = c.tier
	cfg.Policy = func(*simulator.Sim) simulator.Policy { return p }
	return simulator.New(cfg, c.trace, c.rate).Run(), nil
}

// uncached returns a trace without common blocks.
func uncached(t *simulator.Trace) *simulator.Trace {
	b, fresh := simulator.NewBuilder(t.Name), int64(0)
	for i := range t.Requests {
		r := &t.Requests[i]
		own := make([]int64, len(r.Blocks))
		for k := range own {
			fresh++
			own[k] = fresh
		}
		b.Add(r.At, r.Input, r.Output, own)
	}
	return b.Trace()
}
