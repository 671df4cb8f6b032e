package main

import (
	"errors"
	"flag"
	"io"
	"time"

	"warmroute/lab/stage"
)

// options is the command line: the engines and the length of the measurements.
type options struct {
	fleet     stage.Fleet
	pass      time.Duration // arrivals of one pass
	calibrate time.Duration
	seed      uint64
}

// loads are shares of the throughput that the baseline sustains.
var loads = []float64{0.7, 0.9}

// parse reads the command line; defaults are the published run. The replicas are the
// simulation's H100s, with a block of 16 tokens in place of 512: the cache and a step
// have the same number of blocks. A prompt has 46 blocks on average, which take 0.09 s to
// compute.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{fleet: stage.Fleet{Replicas: 4, Blocks: 782, BlockSize: 16, MaxModelLen: 12_000, DecodeRate: 200, StepTokens: 256, Model: "live"}}
	flags := flag.NewFlagSet("livepolicy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Float64Var(&o.fleet.PrefillRate, "prefill-rate", 8000, "prompt tokens per second of a replica")
	flags.DurationVar(&o.pass, "pass", 35*time.Second, "arrivals of one pass")
	flags.DurationVar(&o.calibrate, "calibrate", 25*time.Second, "closed loop that finds what the baseline sustains")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the traffic")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.fleet.PrefillRate <= 0 || o.pass <= 0 || o.calibrate <= 0 {
		return o, errors.New("-prefill-rate, -pass and -calibrate must be positive, and there are no arguments")
	}
	return o, nil
}
