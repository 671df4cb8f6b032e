// Command extproc is warmroute's router: an Envoy external processor that names
// the vLLM replica a request should go to. See `extproc help`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"warmroute/internal/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})
	stop()
	var problem *config.Problem
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case errors.Is(err, errFailed):
		os.Exit(1)
	case errors.As(err, &problem):
		fmt.Fprintln(os.Stderr, err) // FILE:LINE: first, for editors
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "extproc:", err)
		os.Exit(1)
	}
}

// run executes the subcommand args name; `serve` where they name none.
func run(ctx context.Context, args []string, std stdio) error {
	name := "serve"
	if len(args) > 0 {
		switch args[0] {
		case "-h", "-help", "--help", "help":
			return usage(std.out, commands(), "help")
		case "-version", "--version":
			args[0] = "version"
		}
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i < 0 || all[i].run == nil {
		return usage(std.err, all, name)
	}
	return all[i].run(ctx, args, std)
}
