package main

import (
	"context"
	"flag"
	"fmt"

	"warmroute/internal/cli"
	"warmroute/internal/config"
	"warmroute/internal/decision/policy"
	"warmroute/lab/simulator/brain"
)

func policyCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var path, source string
	err := flags(std, "policy", args, func(fs *flag.FlagSet) {
		configFlag(&path)(fs)
		fs.StringVar(&source, "source", "events", "what the replicas' caches are known from: their `events`, or what was sent to them, by its token ids (history) or by its text (text)")
	})
	if err != nil {
		return err
	}
	from, ok := brain.Sources[source]
	if !ok {
		return fmt.Errorf("-source: there is no source %q", source)
	}
	o, err := policyOf(path)
	if err != nil {
		return err
	}
	return brain.Run(ctx, std.In, std.Out, brain.Options{Policy: o, Source: from})
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
	type part struct {
		Policy policy.Config  `yaml:"policy"`
		Others map[string]any `yaml:",inline"`
	}
	c, err := config.Load[part](path, nil)
	return c.Policy, err
}
