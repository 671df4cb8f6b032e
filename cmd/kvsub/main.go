// Command kvsub is a sidecar of one vLLM: it follows its KV-cache events and
// reports them to an index over gRPC: hashes only, never token ids. With -print
// it writes the events to standard output instead, as JSON lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"warmroute/internal/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvsub:", err)
		stop()
		os.Exit(1) //nolint:gocritic // the deferred stop has run
	}
}

// run executes the command line args until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if telemetry.PrintVersion(stdout, "kvsub", args) {
		return nil
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.print {
		return printEvents(ctx, o, stdout, stderr)
	}
	return sidecar(ctx, o, stderr)
}
