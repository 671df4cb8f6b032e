package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"warmroute/internal/testenv"
)

// table writes the measurements and the simulation's predictions in Markdown.
func (m *measurement) table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "100 %% is %.1f requests/s (machine %.0f %% busy).\n\n", m.full, 100*m.busy)
	b.WriteString("| load | policy | hit rate | mean TTFT | of the baseline's | p50 | p99 | of the baseline's | requests per replica | failed | machine busy | simulated: hit rate | mean | of the baseline's |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, passes := range m.passes {
		base := passes[0]
		for _, p := range passes {
			p50, p99 := testenv.Quantile(p.ttft, 0.5), testenv.Quantile(p.ttft, 0.99)
			fmt.Fprintf(&b, "| %.0f %% | %s | %.1f %% | %.0f ms | %.3f | %d ms | %d ms | %.3f | %s | %d | %.0f %% | %.1f %% | %.0f ms | %.3f |\n",
				100*p.load, p.policy, 100*testenv.HitRate(p.replicas), 1000*p.mean(), p.mean()/base.mean(),
				p50.Milliseconds(), p99.Milliseconds(), p99.Seconds()/testenv.Quantile(base.ttft, 0.99).Seconds(),
				testenv.Requests(p.replicas), p.failed, 100*p.busy, 100*p.sim.Hit, 1000*p.sim.Mean, p.sim.Mean/base.sim.Mean)
		}
	}
	b.WriteString("\n")
	for _, passes := range m.passes {
		live, sim := orders(passes)
		same := "the same order as simulated"
		if live != sim {
			same = "another order than simulated: " + sim
		}
		fmt.Fprintf(&b, "%.0f %%: %s; %s.\n", 100*passes[0].load, live, same)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// orders returns the policies from the lowest mean time to first token to the highest, as
// measured and as simulated.
func orders(passes []*pass) (live, sim string) {
	by := func(mean func(*pass) float64) string {
		var names []string
		for _, p := range slices.SortedFunc(slices.Values(passes), func(a, b *pass) int { return cmp.Compare(mean(a), mean(b)) }) {
			names = append(names, p.policy)
		}
		return strings.Join(names, " < ")
	}
	return by((*pass).mean), by(func(p *pass) float64 { return p.sim.Mean })
}

// verdict returns every reason against belief in the table or in the simulation.
func (m *measurement) verdict() error {
	var errs []error
	void := func(what string, busy float64) {
		if busy > mostBusy {
			errs = append(errs, fmt.Errorf("%s: void, the machine was %.0f %% busy, at most %.0f %% is allowed", what, 100*busy, 100*mostBusy))
		}
	}
	void("calibration", m.busy)
	for _, passes := range m.passes {
		for _, p := range passes {
			void(fmt.Sprintf("%s at %.0f %%", p.policy, 100*p.load), p.busy)
			if p.failed > 0 {
				errs = append(errs, fmt.Errorf("%s at %.0f %%: %d requests failed, one with: %w", p.policy, 100*p.load, p.failed, p.err))
			}
		}
		if live, sim := orders(passes); live != sim {
			errs = append(errs, fmt.Errorf("at %.0f %% the order is %s, in the simulation %s", 100*passes[0].load, live, sim))
		}
	}
	return errors.Join(errs...)
}
