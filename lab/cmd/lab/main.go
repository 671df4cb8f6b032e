// Command lab measures and simulates: it replays logs under routing policies,
// offers the router's decision to other simulators, and prints vLLM's block hashes,
// rendered chats and token ids. See `lab help`.
package main

import (
	"context"
	"errors"
	"flag"

	"warmroute/internal/cli"
	"warmroute/lab/cli/hash"
)

func main() { program().Main() }

func program() cli.Program {
	return cli.Program{Name: "lab", Commands: []cli.Command{
		{Name: "replay", About: "simulate each policy on a log of requests", Run: replayCommand},
		{Name: "policy", About: "the decision for a simulator, as JSON lines on stdin and stdout", Run: policyCommand},
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
