package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// sharing is a number of routers and the delay of their messages, in seconds; below 0
// they share nothing.
type sharing struct {
	routers int
	delay   float64
}

func (s sharing) String() string {
	if s.delay < 0 {
		return "nothing shared"
	}
	return fmt.Sprintf("%g ms", s.delay*1e3)
}

// compareRouters prints the ratio of the times to first token of several routers to those
// of one, by the one-way delay of the messages between them.
func (o *options) compareRouters(cells []cell, out, log io.Writer) error {
	counts, err := numbers(o.routers, strconv.Atoi)
	if err != nil {
		return fmt.Errorf("-routers: %w", err)
	}
	var delays []float64
	for s := range strings.SplitSeq(o.delays, ",") {
		if s == "none" {
			delays = append(delays, -1)
			continue
		}
		ms, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("-delays: %q is neither a number of milliseconds nor \"none\"", s)
		}
		delays = append(delays, ms/1e3)
	}
	var kinds []sharing
	for _, n := range counts {
		for _, d := range delays {
			if n > 1 {
				kinds = append(kinds, sharing{n, d})
			}
		}
	}
	all := append([]sharing{{1, -1}}, kinds...)
	results, err := o.grid(len(all), cells, func(i int, c cell) (simulator.Result, error) {
		r, told, err := o.severalRouters(all[i], c)
		o.log(log, c, fmt.Sprintf("%d routers, %s, %s", all[i].routers, all[i], told), r)
		return r, err
	})
	if err != nil {
		return err
	}
	one := results[0]
	fmt.Fprintf(out, "Mean time to first token of several routers over one router's, and p99, by load; %d cells.\n\n| routers | one-way delay |", len(cells))
	loads, err := numbers(o.loads, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err != nil {
		return fmt.Errorf("-loads: %w", err)
	}
	rule := "\n|---|---|"
	for _, l := range loads {
		fmt.Fprintf(out, " mean at %g | p99 |", l)
		rule += "---|---|"
	}
	fmt.Fprintln(out, rule)
	for i, k := range kinds {
		fmt.Fprintf(out, "| %d | %s |", k.routers, k)
		for _, l := range loads {
			fmt.Fprintf(out, " %+.1f %% | %+.1f %% |",
				100*(ratio(cells, results[i+1], one, l, func(r *simulator.Result) float64 { return r.Mean })-1),
				100*(ratio(cells, results[i+1], one, l, func(r *simulator.Result) float64 { return r.P99 })-1))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// severalRouters runs several routers on a cell, and returns the counts of their
// messages.
func (o *options) severalRouters(k sharing, c cell) (r simulator.Result, told string, err error) {
	b, err := o.brain(c, brain.OneGroup)
	if err != nil {
		return r, "", err
	}
	rs, err := brain.NewRouters(k.routers, k.delay, b)
	if err != nil {
		return r, "", err
	}
	defer rs.Close()
	cfg := o.of(c)
	cfg.Policy = func(*simulator.Sim) simulator.Policy { return rs }
	r = simulator.New(cfg, c.trace, c.rate).Run()
	n := float64(len(c.trace.Requests))
	return r, fmt.Sprintf("%.1f messages and %.0f bytes a request", float64(rs.Messages)/n, float64(rs.Bytes)/n), nil
}
