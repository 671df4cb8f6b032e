package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	root := flags.String("root", "..", "the checkout to build")
	out := flags.String("out", "../dist", "the folder to write to")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "what to build for, separated by commas")
	snapshot := flags.Bool("snapshot", false, "also build a commit with changes since the newest version; its version ends in -snapshot")
	changed := flags.Bool("changed", false, "also build a checkout with changes; its version ends in -changed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag; there are no other arguments", flags.Arg(0))
	}
	s, err := readSource(ctx, *root, *snapshot, *changed)
	if err != nil {
		return err
	}
	return s.release(ctx, *out, strings.Split(*platforms, ","))
}
