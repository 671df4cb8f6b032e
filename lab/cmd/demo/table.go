package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"warmroute/internal/testenv"
)

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

func millis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// columns returns a function that writes a row with a cell for each pass, and one that ends
// the table.
func columns(w io.Writer, passes []*pass) (row func(name string, cell func(p *pass) string), end func() error) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	return func(name string, cell func(p *pass) string) {
		fmt.Fprint(t, name)
		for _, p := range passes {
			fmt.Fprint(t, "\t", cell(p))
		}
		fmt.Fprintln(t)
	}, t.Flush
}

// table writes the outcome of both passes.
func table(w io.Writer, passes []*pass) error {
	row, end := columns(w, passes)
	row("", func(p *pass) string { return p.name })
	row("prefix-cache hit rate", func(p *pass) string { return percent(testenv.HitRate(p.replicas)) })
	row("  bound: one pooled LRU cache", func(p *pass) string { return percent(p.ideal[0]) })
	row("  bound: infinite cache", func(p *pass) string { return percent(p.ideal[1]) })
	row("time to first token, p50", func(p *pass) string { return millis(p.ttft(0.5)) })
	row("time to first token, p99", func(p *pass) string { return millis(p.ttft(0.99)) })
	row("requests per replica", func(p *pass) string { return testenv.Requests(p.replicas) })
	row("requests failed", func(p *pass) string { return fmt.Sprint(p.report.failed) })
	row("traffic's checksum", func(p *pass) string { return p.report.checksum() })
	if err := end(); err != nil {
		return err
	}
	for _, p := range passes {
		if p.reasons == nil {
			continue
		}
		fmt.Fprintf(w, "%s's reason codes: %s\n", p.name, ranked(p.reasons))
		fmt.Fprintf(w, "%s's token ids, by source: %s; the router found the tokenizer\n", p.name, ranked(p.sources))
	}
	return nil
}

// ranked lists counts, the largest first.
func ranked(counts map[string]int) string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	}) {
		if counts[name] > 0 {
			list = append(list, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	return strings.Join(list, ", ")
}
