// Command lab measures and simulates: it replays logs under routing policies,
// offers the router's decision to other simulators, predicts cache hits from captured
// events, and prints vLLM's block hashes, rendered chats and token ids. See `lab help`.
package main

import (
	"context"
	"errors"
	"flag"

	"warmroute/internal/cli"
	"warmroute/internal/cli/predict"
	"warmroute/internal/feed/cachelayout"
	"warmroute/lab/cli/hash"
)

func main() { program().Main() }

func program() cli.Program {
	return cli.Program{Name: "lab", Commands: []cli.Command{
		{Name: "replay", About: "simulate each policy on a log of requests", Run: replayCommand},
		{Name: "compare", About: "simulate this router and other routers' policies on workloads", Run: compareCommand},
		{Name: "agents", About: "simulate sessions of coding agents that exceed the replicas' caches, with and without held prompts", Run: agentsCommand},
		{Name: "policy", About: "the decision for a simulator, as JSON lines on stdin and stdout", Run: policyCommand},
		{Name: "predict", About: "a replica's cache hits, predicted from captured KV events as JSON lines", Run: predictCommand},
		{Name: "hash", About: "vLLM's block hashes of requests given as JSON lines", Run: hashCommand},
		{Name: "tokenize", About: "token ids of texts and requests given as JSON lines", Run: tokenizeCommand},
		{Name: "render", About: "chat templates applied to conversations given as JSON lines", Run: renderCommand},
	}}
}

// flags parses args, which may contain nothing but flags.
func flags(std cli.Stdio, name string, args []string, define func(*flag.FlagSet)) error {
	return cli.Flags(std, "lab "+name, args, define)
}

func hashCommand(_ context.Context, args []string, std cli.Stdio) error {
	if err := flags(std, "hash", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	err := hash.Run(std.In, std.Out)
	if errors.Is(err, hash.ErrBadLine) {
		return cli.ErrFailed
	}
	return err
}

func predictCommand(_ context.Context, args []string, std cli.Stdio) error {
	var model string
	if err := flags(std, "predict", args, func(f *flag.FlagSet) {
		f.StringVar(&model, "model", "", "folder with the model's config.json, for the chunk size of its attention")
	}); err != nil {
		return err
	}
	var layout *cachelayout.Layout
	if model != "" {
		var err error
		if layout, err = cachelayout.Read(model); err != nil {
			return err
		}
	}
	err := predict.Run(std.In, std.Out, layout)
	if errors.Is(err, predict.ErrBadLine) {
		return cli.ErrFailed
	}
	return err
}
