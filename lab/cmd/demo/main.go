// Command demo shows the effect of warmroute: four simulated vLLM replicas behind a real
// Envoy serve the same multi-turn traffic twice, balanced by least_request and routed by
// warmroute, and a table compares the two. With -split, warmroute routes long new prompts
// twice: each is computed where it is answered, or on another replica where that pays.
//
// Everything runs on the loopback interface and in a temporary folder. The demo leaves
// nothing behind, even after Ctrl-C.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\ndemo: stopped; everything it started has ended")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run runs the demo and writes its progress and table to out.
func run(ctx context.Context, args []string, out, stderr io.Writer) error {
	if telemetry.PrintVersion(out, "demo", args) {
		return nil
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "warmroute-demo-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(out, "logs and configurations are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	if o.split {
		return playSplit(ctx, dir, o, makeTraffic(o.shape), out)
	}
	return play(ctx, dir, o, makeTraffic(o.shape), out)
}
