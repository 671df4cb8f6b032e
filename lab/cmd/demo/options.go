package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"time"

	"warmroute/lab/stage"
	"warmroute/lab/vllmsim"
)

// options is the command line: the replicas, the traffic, and what stays.
type options struct {
	fleet stage.Fleet
	shape shape
	keep  bool // keeps the folder with logs and configurations
	trace string
	split bool // compares prefill and decode on one replica and on two
}

// published returns the two demos as they are published: plain balancing against warmroute,
// and, with long new prompts and replicas with a KV connector, prefill and decode on one
// replica against two.
func published(split bool) options {
	if split {
		return options{
			fleet: stage.Fleet{Replicas: 4, Blocks: 4096, BlockSize: 16, MaxModelLen: 8192, PrefillRate: 6000, DecodeRate: 50, StepTokens: 2048, Model: "demo", Connector: vllmsim.Nixl},
			shape: shape{talks: 90, turns: 1, systems: 4, systemWords: 40, userWords: 1600, answer: 64, window: 30 * time.Second, pause: time.Second, seed: 1},
			split: true,
		}
	}
	return options{
		fleet: stage.Fleet{Replicas: 4, Blocks: 640, BlockSize: 16, MaxModelLen: 4096, PrefillRate: 6000, DecodeRate: 50, StepTokens: 2048, Model: "demo"},
		shape: shape{talks: 60, turns: 5, systems: 6, systemWords: 700, userWords: 80, answer: 48, window: 20 * time.Second, pause: 1500 * time.Millisecond, seed: 1},
	}
}

// parse reads the command line; the defaults are the published demo's.
func parse(args []string, stderr io.Writer) (options, error) {
	o := published(slices.Contains(args, "-split"))
	f, s := &o.fleet, &o.shape
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.split, "split", o.split, "compare prompts that are never computed on another replica with prompts that are where it pays; the defaults below are others then")
	flags.IntVar(&f.Replicas, "replicas", f.Replicas, "simulated replicas")
	flags.IntVar(&f.Blocks, "blocks", f.Blocks, "KV blocks of 16 tokens per replica")
	flags.Float64Var(&f.PrefillRate, "prefill-rate", f.PrefillRate, "prompt tokens per second of a replica")
	flags.IntVar(&s.talks, "conversations", s.talks, "conversations")
	flags.IntVar(&s.turns, "turns", s.turns, "turns of each conversation")
	flags.IntVar(&s.answer, "answer", s.answer, "tokens of each answer")
	flags.Uint64Var(&s.seed, "seed", s.seed, "seed of the traffic")
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
