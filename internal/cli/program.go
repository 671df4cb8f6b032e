package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"warmroute/internal/config"
	"warmroute/internal/telemetry"
)

// Stdio is a command's input and outputs.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// Command is one subcommand. Run returns ErrUsage after it has explained itself.
type Command struct {
	Name, About string
	Run         func(ctx context.Context, args []string, std Stdio) error
}

// Errors of commands that have told their user the cause.
var (
	ErrUsage  = errors.New("usage")                  // the command line is wrong and the error is printed
	ErrFailed = errors.New("some input was refused") // reported line by line in the output
)

// Program is a binary with subcommands.
type Program struct {
	Name     string
	Default  string    // the command that runs if the arguments name none; "": the help is printed
	Commands []Command // in the order of the help, which lists version, completion and help after them
}

// Main runs the program on the process's arguments until SIGINT or SIGTERM, the second
// of which kills it, and ends the process: with 2 if the command line is wrong, with 1 after any other error.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal has its usual effect
	err := p.Run(ctx, os.Args[1:], Stdio{os.Stdin, os.Stdout, os.Stderr})
	stop()
	var problem *config.Problem
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, ErrUsage):
		os.Exit(2)
	case errors.Is(err, ErrFailed):
	case errors.As(err, &problem):
		fmt.Fprintln(os.Stderr, err) // FILE:LINE: first, for editors
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
	}
	os.Exit(1)
}

// Run executes the command that args name.
func (p Program) Run(ctx context.Context, args []string, std Stdio) error {
	name := p.Default
	if len(args) > 0 {
		switch args[0] {
		case "-h", "-help", "--help", "help":
			return p.usage(std.Out, "help")
		case "-version", "--version":
			name, args = "version", args[1:]
		default:
			if !strings.HasPrefix(args[0], "-") {
				name, args = args[0], args[1:]
			}
		}
	}
	all := p.all()
	i := slices.IndexFunc(all, func(c Command) bool { return c.Name == name })
	if i < 0 || all[i].Run == nil {
		return p.usage(std.Err, name)
	}
	return all[i].Run(ctx, args, std)
}

// all returns the program's own commands and the ones that every program has.
func (p Program) all() []Command {
	return append(slices.Clone(p.Commands),
		Command{"version", "version, Go, commit and build tags", p.version},
		Command{"completion", fmt.Sprintf("a completion script for bash: source <(%s completion)", p.Name), p.completion},
		Command{"help", "this list", nil})
}

// usage explains the command line and returns the error of a wrong one.
func (p Program) usage(w io.Writer, name string) error {
	if name != "help" && name != "" {
		fmt.Fprintf(w, "%s: %q is not a command\n", p.Name, name)
	}
	fmt.Fprintf(w, "usage: %[1]s COMMAND [flags]; %[1]s COMMAND -h explains one\n", p.Name)
	for _, c := range p.all() {
		fmt.Fprintf(w, "  %-14s %s\n", c.Name, c.About)
	}
	if name == "help" {
		return nil
	}
	return ErrUsage
}

// Flags parses the arguments of a program's command. They may contain flags only.
func Flags(std Stdio, command string, args []string, define func(*flag.FlagSet)) error {
	_, err := parse(std, command, args, 0, define)
	return err
}

// FlagsAndFile parses the arguments of a command that takes a file by its name alone,
// before or after its flags; file is "" without it.
func FlagsAndFile(std Stdio, command string, args []string, define func(*flag.FlagSet)) (file string, err error) {
	alone, err := parse(std, command, args, 1, define)
	if err != nil || len(alone) == 0 {
		return "", err
	}
	return alone[0], nil
}

// parse parses flags, and returns the other arguments, at most that many.
func parse(std Stdio, command string, args []string, most int, define func(*flag.FlagSet)) (alone []string, err error) {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(std.Err)
	define(fs)
	for {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case err != nil:
			return nil, ErrUsage
		}
		if fs.NArg() == 0 {
			return alone, nil
		}
		if len(alone) == most {
			fmt.Fprintf(std.Err, "%s: unexpected argument %q\n", command, fs.Arg(0))
			return nil, ErrUsage
		}
		alone, args = append(alone, fs.Arg(0)), fs.Args()[1:]
	}
}

func (p Program) version(_ context.Context, args []string, std Stdio) error {
	if err := Flags(std, p.Name+" version", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	fmt.Fprintln(std.Out, p.Name, telemetry.ReadBuild())
	return nil
}

func (p Program) completion(_ context.Context, args []string, std Stdio) error {
	if err := Flags(std, p.Name+" completion", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	var names []string
	for _, c := range p.all() {
		names = append(names, c.Name)
	}
	fmt.Fprintf(std.Out, `_%[1]s() {
  local word=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "%[2]s" -- "$word"))
  elif [ "${word:0:1}" = - ]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" -h 2>&1 | sed -n 's/^  \(-[a-z-]*\).*/\1/p')" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -F _%[1]s %[1]s
`, p.Name, strings.Join(names, " "))
	return nil
}
