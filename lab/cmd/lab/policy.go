package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"warmroute/internal/cli"
	"warmroute/internal/config"
	"warmroute/internal/decision/policy"
	"warmroute/lab/cli/replay"
	"warmroute/lab/simulator/brain"
)

func policyCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var path string
	if err := flags(std, "policy", args, configFlag(&path)); err != nil {
		return err
	}
	o, err := policyOf(path)
	if err != nil {
		return err
	}
	return brain.Run(ctx, std.In, std.Out, brain.Options{Policy: o})
}

func configFlag(path *string) func(*flag.FlagSet) {
	return func(fs *flag.FlagSet) {
		fs.StringVar(path, "config", "", "the router's configuration `file`, of which the section policy is read")
	}
}

// policyOf returns the policy section of a router's configuration; without a
// configuration, the default.
func policyOf(path string) (policy.Config, error) {
	if path == "" {
		return policy.Config{}, nil
	}
	c, err := config.LoadPart[struct {
		Policy policy.Config `yaml:"policy"`
	}](path)
	return c.Policy, err
}

func replayCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var file, plot, policies string
	o := replay.Options{Progress: std.Err}
	fs := flag.NewFlagSet("lab replay", flag.ContinueOnError)
	fs.SetOutput(std.Err)
	configFlag(&file)(fs)
	fs.IntVar(&o.Replicas, "replicas", 4, "number of replicas")
	fs.StringVar(&policies, "policies", "p2c,least,localai,llm-d,dynamo", "policies to compare with")
	fs.Float64Var(&o.Speedup, "speedup", 1, "factor on the rate of the log")
	fs.Float64Var(&o.Slower, "slower", 1, "factor on the engine's times against an 8B model on an H100")
	fs.IntVar(&o.Capacity, "capacity", 0, "tokens of KV cache per replica; 0 = those of an H100 with an 8B model")
	fs.BoolVar(&o.Seconds, "seconds", false, "timestamps are seconds, not milliseconds")
	fs.StringVar(&plot, "plot", "", "SVG `file` to write")
	fs.Usage = func() {
		fmt.Fprintln(std.Err, "usage: lab replay [flags] FILE|-\nEvery line of FILE is a JSON object: timestamp, body (and path) or hash_ids and input_length, output_length.")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil || fs.NArg() != 1 {
		if err == nil {
			fs.Usage()
		}
		return cli.ErrUsage
	}
	o.Rivals = strings.Split(policies, ",")
	var err error
	if o.Policy, err = policyOf(file); err != nil {
		return err
	}
	in := std.In
	if name := fs.Arg(0); name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer f.Close()
		in = f
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
