// Command polsim compares routing policies by simulation and prints a table of their
// times to first token, relative to Envoy's P2C balancing. Every run is one policy,
// trace, replica count, load and seed; means over cells are geometric. lab/simulator
// describes the model.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
	"warmroute/lab/simulator/hybrid"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "polsim:", err)
		os.Exit(1)
	}
}

// options is the command line.
type options struct {
	traces, policies string
	replicas, loads  string
	seeds, jobs      int
	router           string
	settings         string
	delay, slow      float64
	scrape           float64
	routers, delays  string
	engine           string
	model            *hybrid.Model // of the engine; nil = full attention alone
	capacity         int
	requests         int // of each trace; 0 = all
	tpot, shares     string
	sources          string
	unnamed          bool // routers are not told how large the replicas' caches are
	tiers            string
	verbose          bool
}

func run(args []string, out, log io.Writer) error {
	var o options
	fs := flag.NewFlagSet("polsim", flag.ContinueOnError)
	fs.SetOutput(log)
	fs.StringVar(&o.traces, "traces", "seeded", "traces in the Mooncake format, by path, or one of seeded, hot, unique, prefill; separated by commas")
	fs.StringVar(&o.policies, "policies", "p2c,least,localai,sglang,aibrix,gie,llm-d,dynamo,reference,warmroute,oracle,pooled", "policies to run; p2c is always run")
	fs.StringVar(&o.replicas, "replicas", "8,16", "replica counts")
	fs.StringVar(&o.loads, "loads", "0.6,0.8,0.95", "offered loads, as shares of what P2C can sustain")
	fs.IntVar(&o.seeds, "seeds", 3, "runs of each cell")
	fs.IntVar(&o.jobs, "jobs", 1, "runs at a time")
	fs.StringVar(&o.router, "router", "", "command that speaks the policy protocol, run as \"warmroute\" (bin/lab policy); without it the same code is run in this process")
	fs.StringVar(&o.settings, "settings", "{}", "policy settings for \"warmroute\" in this process, JSON as for PATCH on the admin port")
	fs.Float64Var(&o.delay, "event-delay", 0.01, "delay of KV events in seconds")
	fs.Float64Var(&o.slow, "slow", 0, "factor by which replica 0 is slower")
	fs.IntVar(&o.capacity, "capacity", 0, "tokens of KV cache per replica; 0 = what an H100 has")
	fs.Float64Var(&o.scrape, "scrape", 0, "seconds between two readings of metrics; 0 = 0.05")
	fs.StringVar(&o.routers, "routers", "", "numbers of routers to compare with one, instead of policies")
	fs.StringVar(&o.delays, "delays", "0.5,1,5,20,100,1000,none", "with -routers: one-way delays in milliseconds of what routers tell each other; none = nothing is shared")
	fs.StringVar(&o.engine, "engine", "", "replicas' model, where their caches have several groups: gemma3 or qwen3-next. Policies are then those that look at no more than full attention, and \"full-attention\" is \"warmroute\" that does so too")
	fs.IntVar(&o.requests, "requests", 0, "requests of each trace, from its beginning; 0 = all")
	fs.StringVar(&o.tpot, "tpot", "", "limits in seconds on each token after the first: compares rules for computing prompts on other replicas by their goodput, instead of policies")
	fs.StringVar(&o.shares, "prefill", "0,0.25,0.5", "with -tpot: shares of the replicas that only compute prompts for others; 0 = all replicas do both")
	fs.StringVar(&o.sources, "sources", "", "sources of matches to compare with one router by events, instead of policies: events, history, text")
	fs.BoolVar(&o.unnamed, "capacity-unnamed", false, "with -sources: routers are not told how many tokens the replicas' caches hold")
	fs.StringVar(&o.tiers, "tiers", "", "bandwidths in GB/s of a tier below the GPUs: compares the router's prices of its blocks with constant ones, instead of policies")
	fs.BoolVar(&o.verbose, "v", false, "print every run on standard error")
	if err := fs.Parse(args); err != nil {
		return errors.New("bad command line")
	}
	if err := o.hybrid(); err != nil {
		return err
	}
	cells, err := o.cells(log)
	if err != nil {
		return err
	}
	if o.tpot != "" {
		return o.compareSplits(cells, out, log)
	}
	if o.sources != "" {
		return o.compareSources(cells, out, log)
	}
	if o.tiers != "" {
		return o.compareTiers(cells, out, log)
	}
	if o.routers != "" {
		return o.compareRouters(cells, out, log)
	}
	names := o.names()
	results, err := o.grid(len(names), cells, func(i int, c cell) (simulator.Result, error) {
		r, err := o.one(names[i], c)
		o.log(log, c, names[i], r)
		return r, err
	})
	if err != nil {
		return err
	}
	return report(out, names, cells, results)
}

// cell is a trace, a replica count, a load and a seed.
type cell struct {
	trace    *simulator.Trace
	replicas int
	load     float64
	seed     int
	rate     float64 // requests per second
	prefill  int     // the first replicas only compute prompts for others
	tier     simulator.Tier
}

func (o *options) names() []string {
	names := []string{"p2c"}
	for name := range strings.SplitSeq(o.policies, ",") {
		if name != "p2c" {
			names = append(names, name)
		}
	}
	return names
}

func (o *options) hardware() simulator.Hardware {
	hw := simulator.H100()
	if o.capacity > 0 {
		hw.Capacity = o.capacity
	}
	if o.model != nil {
		hw = o.model.Hardware(hw)
	}
	return hw
}

// config returns the common configuration of simulations of n replicas.
func (o *options) config(n int) simulator.Config {
	cfg := simulator.Config{Replicas: n, Hardware: o.hardware()}
	if o.model != nil {
		cfg.Scheduler = func() simulator.Scheduler { return o.model.New(cfg.Hardware) }
	}
	return cfg
}

// hybrid finds the model of -engine, and sets its step times in the router's options,
// unless the command line sets them.
func (o *options) hybrid() error {
	if o.engine == "" {
		return nil
	}
	m, ok := hybrid.Models[o.engine]
	if !ok {
		return fmt.Errorf("-engine: there is no model %q", o.engine)
	}
	o.model = &m
	if hw := o.hardware(); o.settings == "{}" {
		o.settings = fmt.Sprintf(`{"ttft":{"prefill_pair":%g,"decode_token":%g}}`, hw.PrefillPair, hw.DecodeToken)
	}
	return nil
}

func (o *options) cells(log io.Writer) ([]cell, error) {
	replicas, err := numbers(o.replicas, strconv.Atoi)
	if err != nil {
		return nil, fmt.Errorf("-replicas: %w", err)
	}
	loads, err := numbers(o.loads, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err != nil {
		return nil, fmt.Errorf("-loads: %w", err)
	}
	var cells []cell
	for name := range strings.SplitSeq(o.traces, ",") {
		for seed := 1; seed <= o.seeds; seed++ {
			t, err := load(name, uint64(seed))
			if err != nil {
				return nil, err
			}
			t.Cut(o.requests)
			for _, n := range replicas {
				rate := simulator.Saturation(t, o.config(n))
				fmt.Fprintf(log, "%s, %d replicas, seed %d: P2C sustains %.2f requests/s\n", t.Name, n, seed, rate)
				for _, l := range loads {
					cells = append(cells, cell{trace: t, replicas: n, load: l, seed: seed, rate: l * rate})
				}
			}
		}
	}
	return cells, nil
}

func load(name string, seed uint64) (*simulator.Trace, error) {
	switch name {
	case "seeded":
		return simulator.Synthetic(6000, seed), nil
	case "hot":
		return simulator.HotBursts(6000, seed), nil
	case "unique":
		return simulator.Unique(6000, seed), nil
	case "prefill":
		return simulator.PrefillHeavy(6000, seed), nil
	}
	return simulator.LoadTrace(name, seed)
}

func numbers[T any](list string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for s := range strings.SplitSeq(list, ",") {
		v, err := parse(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", s)
		}
		out = append(out, v)
	}
	return out, nil
}

// of returns the configuration of a cell's runs.
func (o *options) of(c cell) simulator.Config {
	cfg := o.config(c.replicas)
	cfg.EventDelay, cfg.Scrape, cfg.Slow, cfg.Seed = o.delay, o.scrape, o.slow, uint64(c.seed)
	if o.delay == 0 {
		cfg.EventDelay = -1
	}
	return cfg
}

// brain returns the configuration of the router's decision in a cell.
func (o *options) brain(c cell, groups brain.Groups) (brain.Options, error) {
	b := brain.Options{Replicas: c.replicas, Block: simulator.Block, Seed: uint64(c.seed), Groups: groups}
	if !o.unnamed {
		b.Capacity = o.hardware().Capacity
	}
	if err := json.Unmarshal([]byte(o.settings), &b.Policy.Overrides); err != nil {
		return b, fmt.Errorf("-settings: %w", err)
	}
	return b, nil
}

// grid runs n contenders on every cell, o.jobs runs at a time; it returns results by
// contender, then cell.
func (o *options) grid(n int, cells []cell, run func(i int, c cell) (simulator.Result, error)) ([][]simulator.Result, error) {
	results := make([][]simulator.Result, n)
	var group errgroup.Group
	group.SetLimit(max(1, o.jobs))
	for i := range results {
		results[i] = make([]simulator.Result, len(cells))
	}
	for at, c := range cells {
		for i, of := range results {
			group.Go(func() (err error) {
				of[at], err = run(i, c)
				return err
			})
		}
	}
	return results, group.Wait()
}

// log reports a run.
func (o *options) log(to io.Writer, c cell, name string, r simulator.Result) {
	if o.verbose {
		fmt.Fprintf(to, "%s\t%d\t%.2f\t%d\t%s\thit %.4f\tmean %.3f\tp50 %.3f\tp99 %.3f\timbalance %.2f\n",
			c.trace.Name, c.replicas, c.load, c.seed, name, r.Hit, r.Mean, r.P50, r.P99, r.Imbalance)
	}
}

// one runs a policy on a cell.
func (o *options) one(name string, c cell) (simulator.Result, error) {
	cfg := o.of(c)
	switch name {
	case "pooled":
		cfg.Pooled, cfg.Policy = true, simulator.Rivals["oracle"]
	case "reference":
		cfg.Policy = simulator.Reference(2, 20, 1, 1.5, 4)
	case "warmroute":
		groups := brain.OneGroup
		if o.model != nil {
			groups = brain.EveryGroup
		} else if o.router != "" { // the protocol has one group only
			return o.external(cfg, c)
		}
		return o.ours(cfg, c, groups)
	case "full-attention":
		return o.ours(cfg, c, brain.FullGroup)
	default:
		if cfg.Policy = simulator.Rivals[name]; cfg.Policy == nil {
			return simulator.Result{}, fmt.Errorf("there is no policy %q", name)
		}
	}
	return simulator.New(cfg, c.trace, c.rate).Run(), nil
}

// ours runs the router's decision in this process.
func (o *options) ours(cfg simulator.Config, c cell, groups brain.Groups) (simulator.Result, error) {
	b, err := o.brain(c, groups)
	if err != nil {
		return simulator.Result{}, err
	}
	p, err := brain.NewPolicy(b)
	if err != nil {
		return simulator.Result{}, err
	}
	cfg.Policy = func(*simulator.Sim) simulator.Policy { return p }
	return simulator.New(cfg, c.trace, c.rate).Run(), nil
}

// external runs the router's decision in its own process.
func (o *options) external(cfg simulator.Config, c cell) (simulator.Result, error) {
	args := strings.Fields(o.router)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return simulator.Result{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return simulator.Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return simulator.Result{}, err
	}
	var ext *simulator.External
	cfg.Policy = func(s *simulator.Sim) simulator.Policy {
		ext = simulator.NewExternal(s, in, out)
		return ext
	}
	r := simulator.New(cfg, c.trace, c.rate).Run()
	return r, errors.Join(ext.Err(), in.Close(), cmd.Wait())
}
