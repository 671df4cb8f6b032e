package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// options are the command line.
type options struct {
	print  bool
	tokens bool

	endpoint string
	replay   string
	topic    string
}

const usage = `kvsub -print -endpoint tcp://HOST:PORT [-replay tcp://HOST:PORT] [-topic PREFIX] [-tokens]

Follows one vLLM's KV-cache events (--kv-events-config, publisher zmq).

`

// parse reads the command line; every problem is named at once.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("kvsub", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	f.BoolVar(&o.print, "print", false, "write decoded events to standard output as JSON lines")
	f.BoolVar(&o.tokens, "tokens", false, "with -print: token ids and extra keys too, not only their number; these are users' prompts")
	f.StringVar(&o.endpoint, "endpoint", "", "the publisher's event socket, tcp://host:port or ipc://path")
	f.StringVar(&o.replay, "replay", "", "its replay socket; empty = none, then only what comes from now on is seen")
	f.StringVar(&o.topic, "topic", "", "take only topics that begin with this; empty = all")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(f.Args())
}

func (o options) validate(rest []string) error {
	var problems []error
	if len(rest) > 0 {
		problems = append(problems, fmt.Errorf("argument %q: not understood, everything is a flag", rest[0]))
	}
	if !o.print {
		problems = append(problems, errors.New("-print: must be given, there is no other mode"))
	}
	if o.endpoint == "" {
		problems = append(problems, errors.New("-endpoint: must be given, e.g. tcp://127.0.0.1:5557"))
	}
	return errors.Join(problems...)
}
