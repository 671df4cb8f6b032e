package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"warmroute/envoy"
	"warmroute/internal/cli/hash"
	"warmroute/internal/cli/predict"
	"warmroute/internal/config"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/telemetry"
	"warmroute/internal/xds"
)

// A command is one subcommand. run returns errUsage after it has explained
// itself.
type command struct {
	name, about string
	run         func(ctx context.Context, args []string, std stdio) error
}

// stdio is a command's input and outputs.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

var (
	errUsage  = errors.New("usage")                  // the command line is wrong and the error is printed
	errFailed = errors.New("some input was refused") // reported line by line in the output
)

// commands are the subcommands, in the order of the help.
func commands() []command {
	return []command{
		{"serve", "run the router (the default)", serveCommand},
		{"check", "validate a configuration: every problem at once, then the effective values", checkCommand},
		{"envoy-config", "print an Envoy bootstrap for a configuration", envoyConfigCommand},
		{"explain", "print where the running router would send a request, and why", explainCommand},
		{"hash", "vLLM's block hashes of requests given as JSON lines", hashCommand},
		{"tokenize", "token ids of texts and requests given as JSON lines", tokenizeCommand},
		{"render", "chat templates applied to conversations given as JSON lines", renderCommand},
		{"policy", "the decision for a simulator, as JSON lines on stdin and stdout", policyCommand},
		{"replay", "simulate each policy on a log of requests", replayCommand},
		{"predict", "predict a vLLM's cache hits from captured KV events as JSON lines", predictCommand},
		{"version", "version, Go, commit and build tags", versionCommand},
		{"completion", "a completion script for bash: source <(extproc completion)", completionCommand},
		{"help", "this list", nil},
	}
}

// usage explains the command line and returns the error of a wrong one.
func usage(w io.Writer, all []command, name string) error {
	if name != "help" {
		fmt.Fprintf(w, "extproc: %q is not a command\n", name)
	}
	fmt.Fprintln(w, "usage: extproc COMMAND [flags]; extproc COMMAND -h explains one")
	for _, c := range all {
		fmt.Fprintf(w, "  %-14s %s\n", c.name, c.about)
	}
	if name == "help" {
		return nil
	}
	return errUsage
}

// flags parses args, which may hold nothing but flags. done means that the
// command has nothing more to do.
func flags(std stdio, name string, args []string, define func(*flag.FlagSet)) error {
	fs := flag.NewFlagSet("extproc "+name, flag.ContinueOnError)
	fs.SetOutput(std.err)
	define(fs)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(std.err, "extproc %s: unexpected argument %q\n", name, fs.Arg(0))
		return errUsage
	}
	return nil
}

func configFlagVar(path *string) func(*flag.FlagSet) {
	return func(fs *flag.FlagSet) { fs.StringVar(path, "config", "", "configuration `file`") }
}

func checkCommand(_ context.Context, args []string, std stdio) error {
	c, field, err := checkedConfig(std, args)
	if err != nil {
		return err
	}
	if field != "" {
		return explainField(std.out, field)
	}
	notes, err := c.checkFiles()
	if err != nil {
		return err // of the environment: those of the file are known by now
	}
	text, err := config.Print(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "# valid; the effective configuration:\n%s%s", notes, text)
	return nil
}

// checkedConfig reads the configuration that `check` is given: -config FILE, FILE,
// or - for standard input; or returns the field that is to be explained.
func checkedConfig(std stdio, args []string) (c Config, field string, err error) {
	var path string
	if len(args) != 1 || strings.HasPrefix(args[0], "-") && args[0] != "-" {
		err = flags(std, "check", args, func(fs *flag.FlagSet) {
			configFlagVar(&path)(fs)
			fs.StringVar(&field, "explain", "", "explain a `field` or a section of the configuration")
		})
		switch {
		case err != nil || field != "":
			return c, field, err
		case path == "":
			return c, "", errNoConfig
		}
	} else {
		path = args[0]
	}
	if path != "-" {
		c, err = config.Load(path, completeConfig)
		return c, "", err
	}
	text, err := io.ReadAll(std.in)
	if err != nil {
		return c, "", err
	}
	c, err = config.Parse("stdin", text, completeConfig(), os.LookupEnv)
	return c, "", err
}

// sources refuses a fleet without any source of replicas.
func (c Config) sources() error {
	if len(c.Fleet.Replicas)+len(c.Fleet.DNS) > 0 || c.Kubernetes.Enabled() {
		return nil
	}
	return errors.New("fleet: there is no source of replicas; list them under fleet.replicas or fleet.dns, or name a pool under kubernetes")
}

func versionCommand(_ context.Context, args []string, std stdio) error {
	if err := flags(std, "version", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	fmt.Fprintln(std.out, "extproc", telemetry.ReadBuild())
	return nil
}

func completionCommand(_ context.Context, args []string, std stdio) error {
	if err := flags(std, "completion", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	fmt.Fprintf(std.out, `_extproc() {
  local word=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "%s" -- "$word"))
  elif [ "${word:0:1}" = - ]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" -h 2>&1 | sed -n 's/^  \(-[a-z-]*\).*/\1/p')" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -F _extproc extproc
`, strings.Join(names, " "))
	return nil
}

func envoyConfigCommand(_ context.Context, args []string, std stdio) error {
	var path string
	var static, files bool
	err := flags(std, "envoy-config", args, func(fs *flag.FlagSet) {
		configFlagVar(&path)(fs)
		fs.BoolVar(&static, "static", false, "print the whole configuration with the replicas of the file: Envoy does not follow the fleet")
		fs.BoolVar(&files, "files", false, "have Envoy read the files in xds.state, which it must share with the router")
	})
	if err != nil {
		return err
	}
	c, err := loadConfig(path)
	if err != nil {
		return err
	}
	return c.writeEnvoy(std, static, files)
}

// writeEnvoy writes the requested bootstrap, or the one that fits.
func (c Config) writeEnvoy(std stdio, static, files bool) error {
	o := c.envoyOptions()
	switch {
	case static && files:
		return errors.New("envoy-config: -static and -files exclude each other")
	case files && c.XDS.State == "":
		return errors.New("envoy-config: -files needs xds.state, the folder they are in")
	case static, !c.XDS.Enabled():
		return envoy.WriteBootstrap(std.out, o)
	case !files && c.XDS.Listen != "" && xds.Kept(c.XDS.State) && !slices.ContainsFunc(o.XDS, answers):
		fmt.Fprintf(std.err, "extproc: no router answers at %s: this bootstrap reads what was last written to %s\n", strings.Join(o.XDS, ", "), c.XDS.State)
		files = true
	}
	if files || c.XDS.Listen == "" {
		return envoy.WriteDynamic(std.out, o, envoy.Discovery(c.XDS.State))
	}
	return envoy.WriteDynamic(std.out, o, envoy.ADS)
}

// answers reports whether a server listens at addr.
func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func predictCommand(_ context.Context, args []string, std stdio) error {
	var model string
	if err := flags(std, "predict", args, func(f *flag.FlagSet) {
		f.StringVar(&model, "model", "", "folder with the model's config.json, for the kinds of cache groups if events do not name them")
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
	err := predict.Run(std.in, std.out, layout)
	if errors.Is(err, predict.ErrBadLine) {
		return errFailed
	}
	return err
}

func hashCommand(_ context.Context, args []string, std stdio) error {
	if err := flags(std, "hash", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	err := hash.Run(std.in, std.out)
	if errors.Is(err, hash.ErrBadLine) {
		return errFailed
	}
	return err
}
