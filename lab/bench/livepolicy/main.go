// Command livepolicy compares routing policies in time: it sends the same open-loop
// traffic through real Envoy to four simulated replicas, once for each policy and load,
// and runs it through the simulation of bench-policy, with engines of the same rates. It
// fails if a request fails, if the machine is too busy for meaningful times, and if the
// two put the policies in different orders.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "livepolicy:", err)
		os.Exit(1)
	}
}

// run measures and writes the table to out, its progress to log.
func run(ctx context.Context, args []string, out, log io.Writer) error {
	o, err := parse(args, log)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "warmroute-livepolicy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := measure(ctx, dir, o, log)
	if err != nil {
		return err
	}
	if err := m.table(out); err != nil {
		return err
	}
	return m.verdict()
}
