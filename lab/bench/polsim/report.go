package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"warmroute/lab/simulator"
)

// report prints for each policy the hit rate and, by load, mean and p99 time to first
// token: geometric means over all cells, in seconds and relative to P2C.
func report(out io.Writer, names []string, cells []cell, results [][]simulator.Result) error {
	var loads []float64
	for _, c := range cells {
		if !slices.Contains(loads, c.load) {
			loads = append(loads, c.load)
		}
	}
	slices.Sort(loads)
	header, rule := "| policy | hit rate |", "|---|---|"
	for _, l := range loads {
		header += fmt.Sprintf(" mean at %.2f | of P2C's | p99, of P2C's |", l)
		rule += "---|---|---|"
	}
	fmt.Fprintf(out, "%s\n%s\n", header, rule)
	p2c := results[slices.Index(names, "p2c")]
	for i, name := range names {
		hits := 0.0
		for _, r := range results[i] {
			hits += r.Hit / float64(len(cells))
		}
		line := fmt.Sprintf("| %s | %.1f %% |", name, 100*hits)
		for _, l := range loads {
			line += fmt.Sprintf(" %.3f s | %.3f | %.3f |",
				ratio(cells, results[i], nil, l, func(r *simulator.Result) float64 { return r.Mean }),
				ratio(cells, results[i], p2c, l, func(r *simulator.Result) float64 { return r.Mean }),
				ratio(cells, results[i], p2c, l, func(r *simulator.Result) float64 { return r.P99 }))
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// ratio returns the geometric mean of of/to over the cells of a load, or of of itself if
// to is nil.
func ratio(cells []cell, of, to []simulator.Result, load float64, value func(*simulator.Result) float64) float64 {
	sum, n := 0.0, 0.0
	for i, c := range cells {
		if c.load == load {
			sum += math.Log(value(&of[i]))
			if to != nil {
				sum -= math.Log(value(&to[i]))
			}
			n++
		}
	}
	return math.Exp(sum / n)
}
