package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"warmroute/internal/cli"
	"warmroute/lab/cli/replay"
)

const replayUsage = `usage: lab replay [flags] FILE…|-
FILE is one of three, also compressed with gzip:
  the router's trace file (filter.trace_file); FILE.1, FILE.2 and so on are read before it
  Envoy's access log, as "extproc envoy-config" configures it: it is only summed up
  a log of JSON objects: timestamp, body (and path) or hash_ids and input_length, output_length
`

func replayCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var file, plot string
	o := replay.Options{Progress: std.Err}
	fs := flag.NewFlagSet("lab replay", flag.ContinueOnError)
	fs.SetOutput(std.Err)
	configFlag(&file)(fs)
	replayFlags(fs, &o)
	fs.StringVar(&plot, "plot", "", "SVG `file` to write")
	fs.Usage = func() {
		fmt.Fprint(std.Err, replayUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil || fs.NArg() == 0 {
		if err == nil {
			fs.Usage()
		}
		return cli.ErrUsage
	}
	var err error
	if o.Policy, err = policyOf(file); err != nil {
		return err
	}
	in, closeAll, err := inputs(fs.Args(), std.In)
	defer closeAll()
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if plot == "" {
		return replay.Run(ctx, in, std.Out, o)
	}
	f, err := os.Create(plot)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	o.Plot = f
	return errors.Join(replay.Run(ctx, in, std.Out, o), f.Close())
}

func replayFlags(fs *flag.FlagSet, o *replay.Options) {
	fs.Func("replicas", "`numbers` of replicas, like 4,8; default: as many as a trace file had, else 4", func(s string) error {
		for part := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return fmt.Errorf("%q is not a number", part)
			}
			o.Replicas = append(o.Replicas, n)
		}
		return nil
	})
	fs.Func("policies", "`names` of policies to compare with; savings are against the first; default: p2c,least,localai,llm-d,dynamo (p2c is Envoy's least_request)", func(s string) error {
		o.Rivals = strings.Split(s, ",")
		return nil
	})
	fs.Float64Var(&o.Price, "gpu-hour", 0, "`price` of a GPU hour")
	fs.IntVar(&o.GPUs, "gpus", 1, "GPUs of a replica")
	fs.Float64Var(&o.PrefillRate, "prefill-rate", 0, "prompt `tokens` per second that a replica computes; 0 = as a trace file shows, else those of an 8B model on an H100")
	fs.Float64Var(&o.DecodeStep, "decode-step", 0, "`ms` between two tokens of an answer; 0 = as a trace file shows, else in proportion to the prefill")
	fs.Float64Var(&o.Slower, "slower", 1, "in place of it, a `factor` on the engine's times against an 8B model on an H100")
	fs.IntVar(&o.Capacity, "capacity", 0, "`tokens` of KV cache per replica; 0 = as a trace file says, else those of an H100 with an 8B model")
	fs.IntVar(&o.Output, "output", 0, "`tokens` of an answer where the file does not say; 0 = as a trace file shows, else 300")
	fs.IntVar(&o.Block, "block", 0, "`tokens` of a simulated block, a multiple of the trace file's; 0 = those")
	fs.Float64Var(&o.Hold, "hold", 0, "simulate a trace file's sessions with and without held requests in place of policies, with this `share` (sessions.share, 0.1)")
	fs.StringVar(&o.Model, "model", "", "`name` of the model in a trace file; default: the one with the most tokens")
	fs.Float64Var(&o.Warm, "warm", 0.1, "`share` of the first requests that do not count")
	fs.Float64Var(&o.Speedup, "speedup", 1, "`factor` on the rate of the requests")
	fs.BoolVar(&o.Seconds, "seconds", false, "timestamps of a log are seconds, not milliseconds")
}

// maxRotated bounds the files beside a trace file that are looked for.
const maxRotated = 10_000

// inputs opens the files, and before each the files that a rotation has moved away from it,
// the oldest first.
func inputs(names []string, stdin io.Reader) (in []io.Reader, closeAll func(), err error) {
	var opened []*os.File
	closeAll = func() {
		for _, f := range opened {
			f.Close()
		}
	}
	for _, name := range names {
		if name == "-" {
			in = append(in, stdin)
			continue
		}
		for _, part := range rotated(name) {
			f, err := os.Open(part)
			if err != nil {
				return nil, closeAll, err
			}
			in, opened = append(in, f), append(opened, f)
		}
	}
	return in, closeAll, nil
}

// rotated returns the parts of a rotated file, which may be compressed.
func rotated(name string) []string {
	parts := []string{name}
	for i := 1; i < maxRotated; i++ {
		part := name + "." + strconv.Itoa(i)
		if _, err := os.Stat(part); err != nil {
			if _, err := os.Stat(part + ".gz"); err != nil {
				break
			}
			part += ".gz"
		}
		parts = append([]string{part}, parts...)
	}
	return parts
}
