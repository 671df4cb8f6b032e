package main

import (
	"context"
	"fmt"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/stage"
)

// passKind is the way of choosing a replica.
type passKind string

const (
	leastRequest passKind = "least_request"
	warmroute    passKind = "warmroute"
)

// pass is one run of the traffic, with the replicas' counts of it.
type pass struct {
	name     string
	report   *report
	replicas []testenv.Counters
	reasons  map[string]int // warmroute's reason codes; nil: a pass without it
	sources  map[string]int // requests by the source of their token ids in warmroute
	splits   map[string]int // requests by whether another replica computed the prompt, or why not
	moved    int            // tokens whose KV cache went to another replica
	ideal    [2]float64     // bounds of the hit rate: pooled LRU, infinite cache; of replicas without a KV connector
}

// ttft returns the q-quantile of the times to first token.
func (p *pass) ttft(q float64) time.Duration {
	return p.quantile(q, func(e *exchange) time.Duration { return e.TTFT })
}

// quantile returns the q-quantile of a time of the answers.
func (p *pass) quantile(q float64, of func(*exchange) time.Duration) time.Duration {
	var all []time.Duration
	for i := range p.report.exchanges {
		if e := &p.report.exchanges[i]; e.err == nil {
			all = append(all, of(e))
		}
	}
	return testenv.Quantile(all, q)
}

// playPass plays the traffic once, on processes of its own; router is nil for Envoy alone.
func playPass(ctx context.Context, st *stage.Stage, kind passKind, router *stage.Router, t *traffic, told *progress) (*pass, error) {
	told.print("%s: starting", kind)
	run, err := st.Start(ctx, string(kind), router)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if router != nil {
		if err := run.AwaitTokens(ctx); err != nil {
			return nil, err
		}
	}
	p := &pass{name: string(kind)}
	p.report = t.send(ctx, run.URL, st.Fleet.Model, func(done, failed int) { told.count(string(kind), done, failed) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p, p.account(ctx, run, st.Fleet, t.shape.answer)
}

// account reads the counters of the replicas and the router, and computes the bounds.
func (p *pass) account(ctx context.Context, run *stage.Running, f stage.Fleet, answer int) (err error) {
	for _, addr := range run.Replicas {
		c, err := testenv.Count(ctx, addr)
		if err != nil {
			return err
		}
		p.replicas = append(p.replicas, c)
	}
	if run.Router != "" {
		page, err := testenv.Get(ctx, "http://"+run.Router+"/metrics")
		if err != nil {
			return fmt.Errorf("the router's metrics: %w", err)
		}
		p.reasons = counts(page, "warmroute_decisions_total", "reason")
		p.sources = counts(page, "warmroute_token_source_total", "source")
		p.splits = counts(page, "warmroute_split_decisions_total", "reason")
		p.moved = counts(page, "warmroute_split_moved_tokens_total", "")[""]
	}
	if f.Connector != "" {
		return nil
	}
	p.ideal[0], p.ideal[1], err = bounds(ctx, p.report, f, answer, run.Replicas[0])
	return err
}

// counts returns a metric's values by one label.
func counts(page, metric, label string) map[string]int {
	out := map[string]int{}
	for name, n := range testenv.Samples(page, metric, label) {
		out[name] = int(n)
	}
	return out
}
