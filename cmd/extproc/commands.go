package main

import (
	"context"
	_ "embed"
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
	"warmroute/internal/cli"
	"warmroute/internal/config"
	"warmroute/internal/xds"
)

// stdio is a command's input and outputs.
type stdio = cli.Stdio

// program returns the router with the commands that its operators call.
func program() cli.Program {
	return cli.Program{Name: "extproc", Default: "serve", Commands: []cli.Command{
		{Name: "serve", About: "run the router (the default)", Run: serveCommand},
		{Name: "check", About: "validate a configuration: every problem at once, then the effective values", Run: checkCommand},
		{Name: "schema", About: "print the JSON Schema of the configuration, for editors", Run: schemaCommand},
		{Name: "envoy-config", About: "print an Envoy bootstrap for a configuration", Run: envoyConfigCommand},
		{Name: "ready", About: "print whether the running router is ready; not ready is exit code 1, for the health checks of containers", Run: readyCommand},
		{Name: "explain", About: "print where the running router would send a request, and why", Run: explainCommand},
	}}
}

// flags parses args. They may contain flags only.
func flags(std stdio, name string, args []string, define func(*flag.FlagSet)) error {
	return cli.Flags(std, "extproc "+name, args, define)
}

// configFlags parses args with the flags that define adds, and returns the configuration
// file: -config FILE, or FILE alone.
func configFlags(std stdio, name string, args []string, define func(*flag.FlagSet)) (path string, err error) {
	alone, err := cli.FlagsAndFile(std, "extproc "+name, args, func(fs *flag.FlagSet) {
		fs.StringVar(&path, "config", "", "configuration `file`; it may also stand alone, without -config")
		define(fs)
	})
	switch {
	case err != nil || alone == "":
		return path, err
	case path != "":
		fmt.Fprintf(std.Err, "extproc %s: two configuration files are given, %q and %q\n", name, path, alone)
		return "", cli.ErrUsage
	}
	return alone, nil
}

// schema is the JSON Schema of the configuration. make docs makes it, and docs/configuration.md, from the
// comments of the configuration's fields.
//
//go:embed schema.json
var schema []byte

func schemaCommand(_ context.Context, args []string, std stdio) error {
	if err := flags(std, "schema", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	_, err := std.Out.Write(schema)
	return err
}

func checkCommand(_ context.Context, args []string, std stdio) error {
	var elsewhere bool
	path, err := configFlags(std, "check", args, func(fs *flag.FlagSet) {
		fs.BoolVar(&elsewhere, "elsewhere", false, "the router runs on another machine: leave out the files, folders and token variables of this one")
	})
	switch {
	case err != nil:
		return err
	case path == "":
		return errNoConfig
	}
	c, err := checkedConfig(std, path, !elsewhere)
	if err != nil {
		return err
	}
	notes := ""
	if !elsewhere {
		if notes, err = c.checkFiles(); err != nil {
			return err // an error of the environment: the file's are known by now
		}
	}
	if err := c.unknownAuthorities(); err != nil { // with xds it is an error
		notes += fmt.Sprintf("# %v\n", err)
	}
	text, err := config.Print(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "# valid; the effective configuration:\n%s%s", notes, text)
	return nil
}

// checkedConfig reads the configuration of `check`, - for standard input, for this machine
// or another one.
func checkedConfig(std stdio, path string, here bool) (Config, error) {
	complete := func() Config { return completeConfig(here) }
	if path != "-" {
		return config.Load(path, complete)
	}
	text, err := io.ReadAll(std.In)
	if err != nil {
		return Config{}, err
	}
	return config.Parse("stdin", text, complete(), os.LookupEnv)
}

// sources refuses a fleet without any source of replicas.
func (c Config) sources() error {
	if len(c.Fleet.Replicas)+len(c.Fleet.DNS) > 0 || c.Kubernetes.Enabled() {
		return nil
	}
	return errors.New("fleet: there is no source of replicas; list them under fleet.replicas or fleet.dns, or name a pool under kubernetes")
}

func envoyConfigCommand(_ context.Context, args []string, std stdio) error {
	var static, files bool
	path, err := configFlags(std, "envoy-config", args, func(fs *flag.FlagSet) {
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

// writeEnvoy writes the requested bootstrap, or the one that fits the
// configuration.
func (c Config) writeEnvoy(std stdio, static, files bool) error {
	o := c.envoyOptions()
	switch {
	case static && files:
		return errors.New("envoy-config: -static and -files exclude each other")
	case files && c.XDS.State == "":
		return errors.New("envoy-config: -files needs xds.state, the folder they are in")
	case static, !c.XDS.Enabled():
		o, err := c.withReplicaTLS(o)
		if err != nil {
			return err
		}
		return envoy.WriteBootstrap(std.Out, o)
	case !files && c.XDS.Listen != "" && xds.Kept(c.XDS.State) && !slices.ContainsFunc(o.XDS, answers):
		fmt.Fprintf(std.Err, "extproc: no router answers at %s: this bootstrap reads what was last written to %s\n", strings.Join(o.XDS, ", "), c.XDS.State)
		files = true
	}
	if files || c.XDS.Listen == "" {
		return envoy.WriteDynamic(std.Out, o, envoy.Discovery(c.XDS.State))
	}
	return envoy.WriteDynamic(std.Out, o, envoy.ADS)
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
