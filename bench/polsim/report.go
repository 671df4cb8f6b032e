package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"warmroute/internal/polsim"
)

// report prints, per policy, the geometric mean over all cells of one load of
// mean and p99 time to first token relative to P2C, and the mean hit rate.
func report(out io.Writer, names []string, cells []cell, results map[string][]polsim.Result) error {
	var loads []float64
	for _, c := range cells {
		if !slices.Contains(loads, c.load) {
			loads = append(loads, c.load)
		}
	}
	slices.Sort(loads)
	header, rule := "| policy | hit rate |", "|---|---|"
	for _, l := range loads {
		header += fmt.Sprintf(" mean at %.2f | p99 at %.2f |", l, l)
		rule += "---|---|"
	}
	fmt.Fprintf(out, "%s\n%s\n", header, rule)
	for _, name := range names {
		hits := 0.0
		for _, r := range results[name] {
			hits += r.Hit / float64(len(cells))
		}
		line := fmt.Sprintf("| %s | %.1f %% |", name, 100*hits)
		for _, l := range loads {
			line += fmt.Sprintf(" %.3f | %.3f |",
				ratio(cells, results[name], results["p2c"], l, func(r *polsim.Result) float64 { return r.Mean }),
				ratio(cells, results[name], results["p2c"], l, func(r *polsim.Result) float64 { return r.P99 }))
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// ratio is the geometric mean of of/to over the cells of a load.
func ratio(cells []cell, of, to []polsim.Result, load float64, value func(*polsim.Result) float64) float64 {
	sum, n := 0.0, 0.0
	for i, c := range cells {
		if c.load == load {
			sum += math.Log(value(&of[i]) / value(&to[i]))
			n++
		}
	}
	return math.Exp(sum / n)
}
