package main

import (
	"errors"
	"flag"
	"io"
	"time"

	"warmroute/lab/stage"
)

// options is the command line: the replicas, the traffic, and what stays.
type options struct {
	fleet stage.Fleet
	shape shape
	keep  bool // keeps the folder with logs and configurations
	trace string
}

// parse reads the command line; the defaults are the published demo.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{
		fleet: stage.Fleet{BlockSize: 16, MaxModelLen: 4096, DecodeRate: 50, StepTokens: 2048, Model: "demo"},
		shape: shape{systems: 6, systemWords: 700, userWords: 80, window: 20 * time.Second, pause: 1500 * time.Millisecond},
	}
	f, s := &o.fleet, &o.shape
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&f.Replicas, "replicas", 4, "simulated replicas")
	flags.IntVar(&f.Blocks, "blocks", 640, "KV blocks of 16 tokens per replica")
	flags.Float64Var(&f.PrefillRate, "prefill-rate", 6000, "prompt tokens per second of a replica")
	flags.IntVar(&s.talks, "conversations", 60, "conversations")
	flags.IntVar(&s.turns, "turns", 5, "turns of each conversation")
	flags.IntVar(&s.answer, "answer", 48, "tokens of each answer")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the traffic")
	flags.BoolVar(&o.keep, "keep", false, "keep the folder with the logs and configurations")
	flags.StringVar(&o.trace, "trace", "", "`file` that gets the router's trace, for lab replay")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || f.Replicas < 1 || s.talks < 1 || s.turns < 1 {
		return o, errors.New("-replicas, -conversations and -turns must be at least 1, and there are no arguments")
	}
	return o, nil
}
