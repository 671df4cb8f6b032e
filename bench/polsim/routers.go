package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"warmroute/internal/decision/policy"
	"warmroute/internal/simulator"
	"warmroute/internal/simulator/brain"
)

// sharing is a number of routers and how long their messages take, in seconds;
// below 0 they share nothing.
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

// compareRouters prints how the times to first token of several routers compare
// with those of one, by one-way delay of what they tell each other.
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
	results, err := o.runRouters(append([]sharing{{1, -1}}, kinds...), cells, log)
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

// runRouters runs every kind on every cell.
func (o *options) runRouters(kinds []sharing, cells []cell, log io.Writer) ([][]simulator.Result, error) {
	results := make([][]simulator.Result, len(kinds))
	slots := make(chan struct{}, max(1, o.jobs))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for k := range kinds {
		results[k] = make([]simulator.Result, len(cells))
		for i := range cells {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				r, told, err := o.severalRouters(kinds[k], cells[i])
				mu.Lock()
				defer mu.Unlock()
				results[k][i] = r
				if err != nil {
					failed = err
				}
				if o.verbose {
					fmt.Fprintf(log, "%s\t%d\t%.2f\t%d\t%d routers, %s\thit %.4f\tmean %.3f\tp99 %.3f\t%s\n", cells[i].trace.Name, cells[i].replicas,
						cells[i].load, cells[i].seed, kinds[k].routers, kinds[k], r.Hit, r.Mean, r.P99, told)
				}
			})
		}
	}
	wg.Wait()
	return results, failed
}

func (o *options) severalRouters(k sharing, c cell) (r simulator.Result, told string, err error) {
	var settings policy.Config
	if err := json.Unmarshal([]byte(o.settings), &settings.Overrides); err != nil {
		return r, "", fmt.Errorf("-settings: %w", err)
	}
	rs, err := brain.NewRouters(k.routers, k.delay, brain.Options{Replicas: c.replicas, Block: simulator.Block, Seed: uint64(c.seed), Policy: settings})
	if err != nil {
		return r, "", err
	}
	defer rs.Close()
	cfg := o.config(c.replicas)
	cfg.EventDelay, cfg.Scrape, cfg.Slow, cfg.Seed = o.delay, o.scrape, o.slow, uint64(c.seed)
	cfg.Policy = func(*simulator.Sim) simulator.Policy { return rs }
	r = simulator.New(cfg, c.trace, c.rate).Run()
	n := float64(len(c.trace.Requests))
	return r, fmt.Sprintf("%.1f messages and %.0f bytes a request", float64(rs.Messages)/n, float64(rs.Bytes)/n), nil
}
