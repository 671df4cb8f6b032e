package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// pass is one run of the traffic and what the replicas say of it.
type pass struct {
	name     string
	report   *report
	replicas []replicaCount
	reasons  map[string]int // warmroute's reason codes; nil: it was not there
	ideal    [2]float64     // hit rate's bounds: pooled LRU, infinite cache
}

// replicaCount is one replica's own counters.
type replicaCount struct {
	addr          string
	requests      int
	queries, hits float64 // tokens
}

// hitRate is the share of prompt tokens that the replicas found cached.
func (p *pass) hitRate() float64 {
	var queries, hits float64
	for _, r := range p.replicas {
		queries += r.queries
		hits += r.hits
	}
	if queries == 0 {
		return 0
	}
	return hits / queries
}

// ttft is the q-quantile (nearest rank) of the times to first token.
func (p *pass) ttft(q float64) time.Duration {
	var all []time.Duration
	for _, e := range p.report.exchanges {
		if e.err == nil {
			all = append(all, e.ttft)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

func (p *pass) requests() string {
	var out []string
	for _, r := range p.replicas {
		out = append(out, fmt.Sprint(r.requests))
	}
	return strings.Join(out, " ")
}

// table writes the outcome of both passes.
func table(w io.Writer, passes []*pass) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(name string, cell func(p *pass) string) {
		fmt.Fprint(t, name)
		for _, p := range passes {
			fmt.Fprint(t, "\t", cell(p))
		}
		fmt.Fprintln(t)
	}
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	millis := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	row("", func(p *pass) string { return p.name })
	row("prefix-cache hit rate", func(p *pass) string { return percent(p.hitRate()) })
	row("  bound: one pooled LRU cache", func(p *pass) string { return percent(p.ideal[0]) })
	row("  bound: infinite cache", func(p *pass) string { return percent(p.ideal[1]) })
	row("time to first token, p50", func(p *pass) string { return millis(p.ttft(0.5)) })
	row("time to first token, p99", func(p *pass) string { return millis(p.ttft(0.99)) })
	row("requests per replica", (*pass).requests)
	row("requests failed", func(p *pass) string { return fmt.Sprint(p.report.failed) })
	row("traffic's checksum", func(p *pass) string { return p.report.checksum() })
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range passes {
		if p.reasons == nil {
			continue
		}
		var codes []string
		for _, code := range slices.SortedFunc(maps.Keys(p.reasons), func(a, b string) int {
			if p.reasons[a] != p.reasons[b] {
				return p.reasons[b] - p.reasons[a]
			}
			return strings.Compare(a, b)
		}) {
			if p.reasons[code] > 0 {
				codes = append(codes, fmt.Sprintf("%s %d", code, p.reasons[code]))
			}
		}
		fmt.Fprintf(w, "%s's reason codes: %s\n", p.name, strings.Join(codes, ", "))
	}
	return nil
}
