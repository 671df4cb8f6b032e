// Command vllmsim is a simulated vLLM replica: OpenAI-style routes, a KV cache
// with vLLM's eviction, KV events over ZeroMQ, metrics and a timing model. It
// needs no model and no GPU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"warmroute/internal/telemetry"
	"warmroute/lab/vllmsim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) // the deferred stop has run already
	}
}

// run serves until ctx ends. It logs to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if telemetry.PrintVersion(stdout, "vllmsim", args) {
		return nil
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	sim, err := vllmsim.New(o)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	log.Info("serving", "model", o.Model, "version", string(o.Version), "address", sim.Addr(),
		"events", sim.EventEndpoint(0), "replay", sim.ReplayEndpoint(0))
	return sim.Run(ctx)
}
