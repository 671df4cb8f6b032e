// Command demo shows what warmroute is for: four simulated vLLM replicas behind
// a real Envoy serve the same multi-turn traffic twice, balanced by
// least_request and routed by warmroute, and a table compares the two.
//
// Everything runs on the loopback interface and in a temporary folder; nothing
// is left behind, also after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\ndemo: stopped; everything it started has ended")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays the demo and writes its progress and table to out.
func run(ctx context.Context, args []string, out, stderr io.Writer) error {
	f := fleet{blockSize: 16, maxModelLen: 4096, model: "demo"}
	s := shape{systems: 6, systemWords: 700, userWords: 80, window: 20 * time.Second, pause: 1500 * time.Millisecond}
	keep := false
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&f.replicas, "replicas", 4, "simulated replicas")
	flags.IntVar(&f.blocks, "blocks", 640, "KV blocks of 16 tokens per replica")
	flags.Float64Var(&f.prefillRate, "prefill-rate", 6000, "prompt tokens per second of a replica")
	flags.IntVar(&s.talks, "conversations", 60, "conversations")
	flags.IntVar(&s.turns, "turns", 5, "turns of each conversation")
	flags.IntVar(&s.answer, "answer", 48, "tokens of each answer")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the traffic")
	flags.BoolVar(&keep, "keep", false, "keep the folder with the logs and configurations")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f.answer = s.answer
	if flags.NArg() > 0 || f.replicas < 1 || s.talks < 1 || s.turns < 1 {
		return errors.New("-replicas, -conversations and -turns must be at least 1, and there are no arguments")
	}
	dir, err := os.MkdirTemp("", "warmroute-demo-")
	if err != nil {
		return err
	}
	if keep {
		fmt.Fprintln(out, "logs and configurations are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	return play(ctx, dir, f, makeTraffic(s), out)
}

// play builds the programs, runs both passes and prints the table.
func play(ctx context.Context, dir string, f fleet, t *traffic, out io.Writer) error {
	total := t.shape.talks * t.shape.turns
	fmt.Fprintf(out, "%d requests in %d conversations over %d system prompts, %d replicas of %d blocks; twice, about a minute and a half in all\n",
		total, t.shape.talks, t.shape.systems, f.replicas, f.blocks)
	st := &stage{dir: dir, fleet: f, progress: newProgress(out, total)}
	if err := st.build(ctx); err != nil {
		return err
	}
	var passes []*pass
	for _, kind := range []passKind{leastRequest, warmroute} {
		p, err := st.pass(ctx, kind, t)
		if err != nil {
			return err
		}
		passes = append(passes, p)
	}
	fmt.Fprintln(out)
	if err := table(out, passes); err != nil {
		return err
	}
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
