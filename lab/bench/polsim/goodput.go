package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// handover and bandwidth are of the simulated connection: an 8B model's KV cache at
// 10 GB/s, and a delay in seconds as is seen between a prefill's end and the first token
// beside the move. The router's settings differ: it learns both.
const (
	handover  = 0.1
	bandwidth = 75_000
)

// thetaFor is policy.prefill_decode.theta times the limit in seconds on each token after
// the first: the tighter the limit, the dearer a delay of answers.
const thetaFor = 0.02

// rules are the contenders beside the router.
var rules = []string{"never", "always", "512", "dynamo"}

// compareSplits prints the goodput of rules for computing prompts on other replicas, and
// of the router's decision, with a theta of 0 and with the limit's.
func (o *options) compareSplits(cells []cell, out, log io.Writer) error {
	float := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	limits, err := numbers(o.tpot, float)
	if err != nil {
		return fmt.Errorf("-tpot: %w", err)
	}
	shares, err := numbers(o.shares, float)
	if err != nil {
		return fmt.Errorf("-prefill: %w", err)
	}
	var runs []cell
	for _, c := range cells {
		for _, share := range shares {
			c.prefill = int(share * float64(c.replicas))
			runs = append(runs, c)
		}
	}
	thetas := []float64{0} // of the contenders behind rules
	for _, limit := range limits {
		thetas = append(thetas, thetaFor/limit)
	}
	results, err := o.grid(len(rules)+len(thetas), runs, func(i int, c cell) (simulator.Result, error) {
		if i < len(rules) {
			return o.ruled(rules[i], c), nil
		}
		r, err := o.apart(thetas[i-len(rules)], c)
		o.log(log, c, fmt.Sprintf("theta %g", thetas[i-len(rules)]), r)
		return r, err
	})
	if err != nil {
		return err
	}
	hw := o.hardware()
	g := goodputs{out: out, lead: make([]float64, len(rules)), worst: math.Inf(1)}
	g.header()
	for k, c := range runs {
		if c.seed != 1 { // a row is the mean of all seeds
			continue
		}
		same := seedsOf(runs, k)
		share := func(i int) float64 {
			return mean(same, func(k int) float64 {
				return 100 * float64(results[i][k].Split) / float64(max(1, len(results[i][k].Served)))
			})
		}
		g.rest(c, share(len(rules)))
		for n, limit := range limits {
			good := func(i int) float64 {
				return mean(same, func(k int) float64 { return 100 * results[i][k].Goodput(&hw, limit) })
			}
			row := make([]float64, len(rules))
			for i := range rules {
				row[i] = good(i)
			}
			ours := len(rules) + 1 + n
			g.row(c, limit, row, good(len(rules)), good(ours), share(ours))
		}
	}
	g.summary()
	return nil
}

// seedsOf returns the numbers of the runs that differ from run k in the seed alone.
func seedsOf(runs []cell, k int) (same []int) {
	for i, c := range runs {
		if d := runs[k]; c.trace.Name == d.trace.Name && c.replicas == d.replicas && c.load == d.load && c.prefill == d.prefill && c.tier == d.tier {
			same = append(same, i)
		}
	}
	return same
}

func mean(runs []int, of func(run int) float64) (sum float64) {
	for _, k := range runs {
		sum += of(k) / float64(len(runs))
	}
	return sum
}

// goodputs prints a table, and sums it up.
type goodputs struct {
	out   io.Writer
	lead  []float64 // the router's largest over each rule, points
	worst float64   // the router's least over the best rule of a row, points
	at    string    // the row of worst
	rows  int
	near  int // rows in which it is at most 2 % below the best

	low  float64 // the least load; 0 = none yet
	zero float64 // the most that it splits there with a theta of 0, where all replicas do both, in percent
}

func (g *goodputs) header() {
	names := slices.Concat([]string{"trace", "replicas", "of these prefill only", "load", "TPOT limit"}, rules, []string{"warmroute, θ 0", "warmroute", "of its requests split"})
	fmt.Fprintf(g.out, "| %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
}

func (g *goodputs) row(c cell, limit float64, others []float64, zero, ours, split float64) {
	name := fmt.Sprintf("%s | %d | %d | %g | %g ms", c.trace.Name, c.replicas, c.prefill, c.load, 1000*limit)
	fmt.Fprintf(g.out, "| %s |", name)
	best := slices.Max(others)
	for i, v := range others {
		g.lead[i] = max(g.lead[i], ours-v)
		mark := ""
		if v == best && best > ours {
			mark = "**"
		}
		fmt.Fprintf(g.out, " %s%.1f%s |", mark, v, mark)
	}
	mark := ""
	if ours >= best {
		mark = "**"
	}
	fmt.Fprintf(g.out, " %.1f | %s%.1f%s | %.0f %% |\n", zero, mark, ours, mark, split)
	if ours-best < g.worst {
		g.worst, g.at = ours-best, name
	}
	if g.rows++; ours >= 0.98*best {
		g.near++
	}
}

// rest takes what the router splits with a theta of 0 on a cell.
func (g *goodputs) rest(c cell, split float64) {
	switch {
	case c.prefill > 0 || g.low > 0 && c.load > g.low:
	case g.low == 0 || c.load < g.low:
		g.low, g.zero = c.load, split
	default:
		g.zero = max(g.zero, split)
	}
}

func (g *goodputs) summary() {
	fmt.Fprintf(g.out, "\nwarmroute is within 2 %% of the best rule in %d of %d rows; at worst %+.1f points (%s). Its largest leads:", g.near, g.rows, g.worst, g.at)
	for i, name := range rules {
		fmt.Fprintf(g.out, " %s %.1f", name, g.lead[i])
	}
	fmt.Fprintf(g.out, "\nWith θ 0, at a load of %g, where all replicas do both, it splits at most %.2f %% of the requests.\n", g.low, g.zero)
}

// ruled runs a rule on a cell.
func (o *options) ruled(rule string, c cell) simulator.Result {
	cfg := o.of(c)
	cfg.Handover, cfg.Bandwidth = handover, bandwidth
	cfg.Policy = simulator.Ruled(rule, c.prefill)
	return simulator.New(cfg, c.trace, c.rate).Run()
}

// apart runs the router's decision on a cell.
func (o *options) apart(theta float64, c cell) (simulator.Result, error) {
	cfg := o.of(c)
	cfg.Handover, cfg.Bandwidth = handover, bandwidth
	b, err := o.brain(c, brain.OneGroup)
	if err != nil {
		return simulator.Result{}, err
	}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"prefill_decode":{"theta":%g}}`, theta), &b.Policy.Overrides); err != nil {
		return simulator.Result{}, fmt.Errorf("theta: %w", err)
	}
	b.Split, b.Prefill = true, c.prefill
	p, err := brain.NewPolicy(b)
	if err != nil {
		return simulator.Result{}, err
	}
	cfg.Policy = func(*simulator.Sim) simulator.Policy { return p }
	return simulator.New(cfg, c.trace, c.rate).Run(), nil
}
