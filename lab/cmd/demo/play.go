package main

import (
	"context"
	"fmt"
	"io"

	"warmroute/envoy"
	"warmroute/lab/stage"
)

// play builds the programs, runs both passes and prints the table.
func play(ctx context.Context, dir string, o options, t *traffic, out io.Writer) error {
	f := o.fleet
	total := t.shape.talks * t.shape.turns
	fmt.Fprintf(out, "%d requests in %d conversations over %d system prompts, %d replicas of %d blocks; twice, about a minute and a half in all\n",
		total, t.shape.talks, t.shape.systems, f.Replicas, f.Blocks)
	told := newProgress(out, total)
	told.print("installing Envoy %s (once) and building", envoy.Version)
	st := &stage.Stage{Dir: dir, Fleet: f}
	if err := st.Build(ctx); err != nil {
		return err
	}
	var passes []*pass
	for _, kind := range []passKind{leastRequest, warmroute} {
		var router *stage.Router
		if kind == warmroute {
			router = &stage.Router{TraceFile: o.trace}
		}
		p, err := playPass(ctx, st, kind, router, t, told)
		if err != nil {
			return err
		}
		passes = append(passes, p)
	}
	fmt.Fprintln(out)
	if err := table(out, passes); err != nil {
		return err
	}
	if o.trace != "" {
		fmt.Fprintf(out, "what the second pass saves, by its trace: bin/lab replay -gpu-hour 2.5 %s\n", o.trace)
	}
	return sound(passes)
}

// sound returns an error if a request failed, or the passes' traffic differs.
func sound(passes []*pass) error {
	for _, p := range passes {
		if p.report.failed > 0 {
			return fmt.Errorf("%s: %d requests failed, one with: %w", p.name, p.report.failed, p.report.firstErr)
		}
	}
	if a, b := passes[0].report.checksum(), passes[1].report.checksum(); a != b {
		return fmt.Errorf("the passes' traffic differs: checksum %s and %s", a, b)
	}
	return nil
}
