package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/lab/stage"
)

// The passes of the demo of prefill and decode on two replicas.
const (
	neverSplit   passKind = "never split"
	splitByPrice passKind = "split by price"
)

// limits are those within which an answer has to come. theta is what
// docs/prefill-decode.md recommends for the second.
const (
	mostTTFT  = 2 * time.Second
	mostToken = 50 * time.Millisecond
	theta     = 0.02 / 0.050
)

// splitPass returns the replicas' roles and the router of a pass: every replica does both, or
// half of them compute prompts for others alone.
func splitPass(kind passKind, replicas int) (roles []string, r *stage.Router) {
	if kind == neverSplit {
		return nil, &stage.Router{}
	}
	return slices.Repeat([]string{"prefill"}, replicas/2), &stage.Router{
		PrefillDecode: map[string]any{"mode": "pull"},
		Policy:        map[string]any{"prefill_decode": map[string]any{"theta": theta}},
		Split:         envoy.Split{On: true, Wait: 30 * time.Second},
	}
}

// playSplit builds the programs, runs both passes and prints the table.
func playSplit(ctx context.Context, dir string, o options, t *traffic, out io.Writer) error {
	total := t.shape.talks * t.shape.turns
	fmt.Fprintf(out, "%d requests with long new prompts, %d replicas; twice, about a minute and a half in all\n", total, o.fleet.Replicas)
	told := newProgress(out, total)
	told.print("installing Envoy %s (once) and building", envoy.Version)
	st := &stage.Stage{Dir: dir, Fleet: o.fleet}
	if err := st.Build(ctx); err != nil {
		return err
	}
	passes, err := splitPasses(ctx, st, t, told)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := splitTable(out, passes, t.shape.answer); err != nil {
		return err
	}
	return sound(passes)
}

// splitPasses plays both passes.
func splitPasses(ctx context.Context, st *stage.Stage, t *traffic, told *progress) (passes []*pass, err error) {
	for _, kind := range []passKind{neverSplit, splitByPrice} {
		roles, router := splitPass(kind, st.Fleet.Replicas)
		st.Fleet.Roles = roles
		p, err := playPass(ctx, st, kind, router, t, told)
		if err != nil {
			return nil, err
		}
		passes = append(passes, p)
	}
	return passes, nil
}

// perToken returns the mean time between the tokens of an answer of so many.
func (e *exchange) perToken(tokens int) time.Duration {
	return (e.Last - e.TTFT) / time.Duration(max(1, tokens-1))
}

// within returns the share of the requests that were answered within both limits.
func (p *pass) within(tokens int) float64 {
	n := 0
	for i := range p.report.exchanges {
		if e := &p.report.exchanges[i]; e.err == nil && e.TTFT <= mostTTFT && e.perToken(tokens) <= mostToken {
			n++
		}
	}
	return float64(n) / float64(max(1, len(p.report.exchanges)))
}

// splitTable writes the outcome of both passes; answers have so many tokens.
func splitTable(w io.Writer, passes []*pass, answer int) error {
	row, end := columns(w, passes)
	token := func(q float64) func(p *pass) string {
		return func(p *pass) string {
			return millis(p.quantile(q, func(e *exchange) time.Duration { return e.perToken(answer) }))
		}
	}
	row("", func(p *pass) string { return p.name })
	row("time to first token, p50", func(p *pass) string { return millis(p.ttft(0.5)) })
	row("time to first token, p99", func(p *pass) string { return millis(p.ttft(0.99)) })
	row("time per further token, p50", token(0.5))
	row("time per further token, p99", token(0.99))
	row(fmt.Sprintf("within %v and %v", mostTTFT, mostToken), func(p *pass) string { return percent(p.within(answer)) })
	row("prompts computed elsewhere", func(p *pass) string { return fmt.Sprint(p.splits["split"]) })
	row("tokens moved", func(p *pass) string { return fmt.Sprint(p.moved) })
	row("requests and legs per replica", func(p *pass) string { return testenv.Requests(p.replicas) })
	row("requests failed", func(p *pass) string { return fmt.Sprint(p.report.failed) })
	row("traffic's checksum", func(p *pass) string { return p.report.checksum() })
	if err := end(); err != nil {
		return err
	}
	for _, p := range passes {
		if len(p.splits) > 0 && ranked(p.splits) != "" {
			fmt.Fprintf(w, "%s, by reason: %s\n", p.name, ranked(p.splits))
		}
	}
	fmt.Fprintln(w, verdict(passes[0], passes[1], answer))
	return nil
}

// chance is how much the share of requests within the limits may differ between two passes
// of the same kind.
const chance = 0.02

// verdict says in a sentence whether splits were worth it.
func verdict(never, split *pass, answer int) string {
	before, after := never.within(answer), split.within(answer)
	shares := fmt.Sprintf("%s of the requests were within both limits with splits, %s without", percent(after), percent(before))
	switch {
	case split.splits["split"] == 0:
		return "No prompt was computed elsewhere, so this run says nothing of splits."
	case after > before+chance:
		return "Splits paid: " + shares + "."
	case after < before-chance:
		return "Splits cost more than they gained: " + shares + ". A fleet at rest, or one whose limits hold without, needs none."
	}
	return "Splits gained nothing that counts: " + shares + ", which may be chance. A fleet at rest, or one whose limits hold without, needs none."
}
