// Command extprocbench measures ext_proc servers the way Envoy's HTTP filter
// uses them: one gRPC stream per HTTP request.
//
//	extprocbench gen -size 16384 -n 2000 > bodies.jsonl         write request bodies
//	extprocbench noop -listen 127.0.0.1:9102 -dests a:1,b:2     serve the do-nothing floor
//	extprocbench load -addr 127.0.0.1:9002 -bodies bodies.jsonl measure one server
//	extprocbench fleet -n 8                                     serve simulated replicas
//	extprocbench cost -extproc bin/extproc                      the router and the floor, as a table
//	extprocbench routers -extproc bin/extproc                   the cost of sharing with other routers, as tables
//	extprocbench several                                        Envoy's cost where a fleet has several models
//	extprocbench usage                                          Envoy's cost of reading the usage of answers
//	extprocbench split -extproc bin/extproc                     the cost of a prefill on another replica, to the router and to Envoy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

var commands = map[string]func(ctx context.Context, args []string) error{
	"gen": genCommand, "noop": noopCommand, "load": loadCommand, "fleet": fleetCommand, "cost": costCommand, "several": severalCommand, "routers": routersCommand, "usage": usageCommand, "split": splitCommand, "legs": legsCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	run, ok := commands[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: extprocbench gen|noop|load|fleet|cost|several|routers|usage|split|legs [flags]; -h after one explains it")
		os.Exit(2)
	}
	err := run(ctx, os.Args[2:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "extprocbench:", err)
		os.Exit(1)
	}
}

func flagSet(name string) *flag.FlagSet {
	return flag.NewFlagSet("extprocbench "+name, flag.ContinueOnError)
}

func genCommand(_ context.Context, args []string) error {
	var g genConfig
	f := flagSet("gen")
	f.IntVar(&g.size, "size", 16384, "bytes of a body, about")
	f.IntVar(&g.count, "n", 2000, "bodies")
	f.Int64Var(&g.seed, "seed", 1, "seed")
	f.IntVar(&g.prefixes, "prefixes", 32, "distinct shared system prompts")
	f.Float64Var(&g.share, "share", 0.75, "share of a body taken by the shared system prompt")
	f.IntVar(&g.sessions, "sessions", 256, "distinct sessions")
	f.StringVar(&g.model, "model", "sim", "model name")
	f.BoolVar(&g.ids, "ids", false, "/v1/completions with token ids in place of chats")
	if err := f.Parse(args); err != nil {
		return err
	}
	return g.write(os.Stdout)
}

func noopCommand(ctx context.Context, args []string) error {
	f := flagSet("noop")
	listen := f.String("listen", "127.0.0.1:9102", "address to serve")
	dests := f.String("dests", "127.0.0.1:8000", "comma list of endpoints handed out in turn")
	usage := f.String("usage", "", "how Envoy is asked to read the answers' usage: detected, completions; empty: not at all")
	model := f.String("model", "", "model that every answer names for Envoy's routes; empty: none")
	split := f.Bool("split", false, "answer as if another replica had computed the prompt")
	if err := f.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	return serveNoop(ctx, l, strings.Split(*dests, ","), noopAnswers{usage: *usage, model: *model, split: *split})
}

func loadCommand(ctx context.Context, args []string) error {
	var cfg clientConfig
	f := flagSet("load")
	bodies := f.String("bodies", "", "JSON lines file, one request body a line; empty: one small body")
	subset := f.String("subset", "", "comma list sent as envoy.lb.subset_hint metadata")
	jsonOut := f.Bool("json", false, "print only the JSON line")
	f.StringVar(&cfg.addr, "addr", "127.0.0.1:9002", "ext_proc server")
	f.BoolVar(&cfg.tls, "tls", false, "use TLS without verifying the certificate")
	f.StringVar(&cfg.mode, "mode", "buffered", "request body mode: buffered or duplex (FULL_DUPLEX_STREAMED)")
	f.StringVar(&cfg.respMode, "response-mode", "none", "response phase: same (as -mode), headers, or none")
	f.IntVar(&cfg.workers, "c", 1, "concurrent streams")
	f.IntVar(&cfg.conns, "conns", 2, "gRPC connections (Envoy opens one for each worker thread)")
	f.IntVar(&cfg.total, "n", 1000, "requests to send")
	f.DurationVar(&cfg.duration, "d", 0, "run for this long instead of -n requests")
	f.IntVar(&cfg.warm, "warm", 200, "requests sent before counting starts")
	f.Float64Var(&cfg.rate, "rate", 0, "open-loop requests per second over all streams (0: closed loop)")
	f.BoolVar(&cfg.sameBody, "same-body", false, "send the first body every time")
	f.StringVar(&cfg.path, "path", "/v1/chat/completions", "request path")
	f.IntVar(&cfg.chunk, "chunk", 16384, "request body chunk size in duplex mode")
	f.IntVar(&cfg.respChunks, "response-chunks", 1, "SSE chunks in the response body")
	f.StringVar(&cfg.subsetOn, "subset-on", "all", "messages that carry -subset: all (as Envoy) or headers")
	f.IntVar(&cfg.pid, "pid", 0, "report CPU per request and memory of this process")
	f.DurationVar(&cfg.timeout, "timeout", 30*time.Second, "deadline of one stream")
	f.DurationVar(&cfg.hold, "hold", 0, "time between the pick and the response, as a model server would take")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *subset != "" {
		cfg.subset = strings.Split(*subset, ",")
	}
	var err error
	if cfg.bodies, err = readBodies(*bodies); err != nil {
		return err
	}
	rep, err := runClient(ctx, &cfg)
	if err != nil {
		return err
	}
	return rep.print(os.Stdout, *jsonOut)
}
