package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"warmroute/internal/cli"
	"warmroute/lab/cli/agents"
)

// generated is the number of sessions that are generated where no file has any.
const generated = 420

func agentsCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var o agents.Options
	var in, counts, policies string
	var asJSON bool
	err := flags(std, "agents", args, func(fs *flag.FlagSet) {
		fs.StringVar(&in, "in", "", "`file` of sessions in JSON, which may be compressed with gzip; default: sessions are generated")
		fs.IntVar(&o.Tokens, "kv-tokens", 640_000, "`tokens` of a replica's KV cache")
		fs.Float64Var(&o.Rate, "prefill-rate", 16_000, "`tokens` of prefill in a second")
		fs.StringVar(&counts, "sessions", "8,12,16,24,32", "`numbers` of sessions that are open at a time")
		fs.StringVar(&policies, "policies", "today,naive,progress,hold", "`names` of policies")
		fs.Float64Var(&o.Hours, "hours", 2, "`hours` that count, after all sessions have begun")
		fs.Uint64Var(&o.Seed, "seed", 1, "`number` from which the order of sessions is drawn")
		fs.IntVar(&o.Replicas, "replicas", 1, "`number` of replicas")
		fs.IntVar(&o.Routers, "routers", 1, "`number` of routers, of which any gets a request")
		fs.Float64Var(&o.Delay, "delay", 0.005, "`seconds` that a message between routers takes; below 0 they send none")
		fs.Float64Var(&o.Share, "share", 0.1, "`part` of a replica's time that cold prompts may take from running sessions")
		fs.Float64Var(&o.Patience, "patience", 0, "`seconds` after which a client gives up and asks again; 0 = never")
		fs.IntVar(&o.Tier.Capacity, "cpu-tokens", 0, "`tokens` of each replica's CPU memory below its GPU; 0 = there is none")
		fs.Float64Var(&o.Tier.Token, "cpu-load", 5.2e-6, "`seconds` to load a token from there")
		fs.IntVar(&o.Jobs, "jobs", 0, "run a fixed list of so many `sessions` to its end; 0 = for -hours")
		fs.BoolVar(&asJSON, "json", false, "one line of JSON a cell")
	})
	if err != nil {
		return err
	}
	if o.Tokens < 1 || !(o.Rate > 0) || !(o.Hours > 0) || o.Replicas < 1 || o.Share < 0 || o.Patience < 0 || o.Jobs < 0 {
		return errors.New("agents: -kv-tokens, -prefill-rate, -hours and -replicas must be positive, and no number below 0")
	}
	if o.Tier.Capacity < 0 || o.Tier.Token < 0 || o.Tier.Capacity > 0 && o.Routers > 1 {
		return errors.New("agents: -cpu-tokens and -cpu-load must not be below 0, and -cpu-tokens needs -routers 1")
	}
	if in == "" {
		o.All = agents.Generate(generated, o.Seed)
	} else if o.All, err = agents.Load(in); err != nil {
		return err
	}
	first := true
	for count := range strings.SplitSeq(counts, ",") {
		if o.Clients, err = strconv.Atoi(count); err != nil || o.Clients < 1 {
			return fmt.Errorf("agents: -sessions: %q is not a positive number", count)
		}
		for name := range strings.SplitSeq(policies, ",") {
			cell, err := agents.Run(ctx, name, o)
			if err != nil {
				return err
			}
			if err := cell.Write(std.Out, asJSON, first); err != nil {
				return err
			}
			first = false
		}
	}
	return nil
}
