package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/lab/vllmsim"

	"warmroute/internal/testenv"
)

// Fleet is the common configuration of the replicas. Zero rates and a zero step size mean
// the simulator's defaults.
type Fleet struct {
	Replicas, Blocks, BlockSize int
	MaxModelLen                 int     // tokens
	PrefillRate                 float64 // tokens per second
	DecodeRate                  float64 // steps per second
	StepTokens                  int     // most prompt tokens of a step
	Seed                        int64
	Model                       string
	Connector                   string   // KV connector of each replica, "" = none
	Roles                       []string // of the first replicas; the others have none set
}

// role returns the role of replica i, "" if none is set.
func (f *Fleet) role(i int) string {
	if i < len(f.Roles) {
		return f.Roles[i]
	}
	return ""
}

// Stage is the common part of several runs.
type Stage struct {
	Dir   string // for binaries, configurations and logs
	Fleet Fleet

	simulator, router string // binaries
	model             string // folder that the replicas report as their model's source
}

// Build installs Envoy, once, compiles the programs that run with it, and writes the
// simulated model's files, which the router finds by the replicas' reports.
func (s *Stage) Build(ctx context.Context) (err error) {
	if _, err := testenv.EnvoyBinary(); err != nil {
		return err
	}
	if s.model, err = filepath.Abs(filepath.Join(s.Dir, "model")); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	if err := vllmsim.WriteModel(s.model); err != nil {
		return err
	}
	if s.simulator, err = testenv.Build(s.Dir, "warmroute/lab/cmd/vllmsim"); err != nil {
		return err
	}
	if s.router, err = testenv.Build(s.Dir, "warmroute/cmd/extproc"); err != nil {
		return err
	}
	return ctx.Err()
}

// Router is the router's configuration, beyond its addresses and the fleet.
type Router struct {
	Policy    any    // section of its configuration file; nil: the defaults
	TraceFile string // path of the router's trace file; "" = no trace file
	Shadow    bool   // Envoy gets no hints

	PrefillDecode any // section of its configuration file; nil: the defaults
	Split         envoy.Split
}

// Running is one Envoy with its replicas and, if it has one, its router.
type Running struct {
	URL      string   // of Envoy's listener
	Replicas []string // addresses
	Router   string   // address of the router's admin port; "": there is none

	started []*testenv.Process
}

// Close ends every process, the last one first.
func (r *Running) Close() {
	for _, p := range slices.Backward(r.started) {
		p.Stop()
	}
}

func (r *Running) keep(p *testenv.Process) { r.started = append(r.started, p) }

// Start starts all programs with cold caches; r is nil for Envoy alone. name is part of
// the logs' names.
func (s *Stage) Start(ctx context.Context, name string, r *Router) (*Running, error) {
	run := &Running{}
	if err := s.start(ctx, name, r, run); err != nil {
		run.Close()
		return nil, err
	}
	return run, nil
}

func (s *Stage) start(ctx context.Context, name string, r *Router, run *Running) (err error) {
	if run.Replicas, err = s.startReplicas(ctx, name, run.keep); err != nil {
		return err
	}
	ports, err := testenv.FreePorts(4)
	if err != nil {
		return err
	}
	local := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	o := envoy.Options{Listen: local(0), Admin: local(1), ExtProc: []string{local(2)}, Replicas: run.Replicas, UsageShare: new(envoy.TrialUsageShare)}
	if r != nil {
		run.Router = local(3)
		o.Split = r.Split
		if err := s.startRouter(ctx, name, r, o.ExtProc[0], run); err != nil {
			return err
		}
	}
	return s.startEnvoy(name, o, run)
}

// AwaitTokens waits until replicas have confirmed the token ids that the router computes
// in process.
func (r *Running) AwaitTokens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		page, err := testenv.Get(ctx, "http://"+r.Router+"/metrics")
		if err != nil {
			return fmt.Errorf("the router's metrics: %w", err)
		}
		if testenv.Samples(page, "warmroute_token_checks_total", "outcome")["equal"] > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no replica has confirmed the router's token ids: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startTimeout is the time that a program has to answer on a busy machine.
const startTimeout = 30 * time.Second

// wait is WaitHTTP with startTimeout.
func wait(ctx context.Context, p *testenv.Process, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := p.WaitHTTP(ctx, url)
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled // Ctrl-C: the log of a stopped program is of no use
	}
	return err
}

// startReplicas starts the simulators and returns their addresses.
func (s *Stage) startReplicas(ctx context.Context, name string, keep func(*testenv.Process)) (addrs []string, err error) {
	f := s.Fleet
	ports, err := testenv.FreePorts(3 * f.Replicas)
	if err != nil {
		return nil, err
	}
	var procs []*testenv.Process
	for i := range f.Replicas {
		local := func(j int) string { return fmt.Sprintf("127.0.0.1:%d", ports[3*i+j]) }
		args := []string{
			"-listen", local(0), "-events", local(1), "-replay", local(2), "-topic", "kv@" + local(0) + "@" + f.Model, "-model", f.Model, "-root", s.model,
			"-blocks", fmt.Sprint(f.Blocks), "-block-size", fmt.Sprint(f.BlockSize), "-max-model-len", fmt.Sprint(f.MaxModelLen),
			"-prefill-rate", fmt.Sprint(f.PrefillRate), "-decode-rate", fmt.Sprint(f.DecodeRate),
			"-max-batched-tokens", fmt.Sprint(f.StepTokens), "-seed", fmt.Sprint(f.Seed), "-connector", f.Connector, "-load-failure", vllmsim.Recompute,
		}
		p, err := testenv.Start(s.Dir, fmt.Sprintf("%s-replica-%d", name, i), nil, s.simulator, args...)
		if err != nil {
			return nil, err
		}
		keep(p)
		procs, addrs = append(procs, p), append(addrs, local(0))
	}
	for i, p := range procs {
		if err := wait(ctx, p, "http://"+addrs[i]+"/health"); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// startRouter starts extproc with the smallest useful configuration and waits until it
// has learned the replicas.
func (s *Stage) startRouter(ctx context.Context, name string, r *Router, listen string, run *Running) error {
	type replica struct {
		Address string `yaml:"address"`
		Role    string `yaml:"role,omitempty"`
	}
	var list []replica
	for i, addr := range run.Replicas {
		list = append(list, replica{addr, s.Fleet.role(i)})
	}
	config := map[string]any{
		"listen":        listen,
		"admin":         map[string]any{"listen": run.Router},
		"index_service": map[string]any{"listen": ""}, // another process may have its port, and no run needs it
		"xds":           map[string]any{"listen": ""},
		"fleet":         map[string]any{"replicas": list},
		"envoy":         map[string]any{"usage_share": envoy.TrialUsageShare},
	}
	if r.Policy != nil {
		config["policy"] = r.Policy
	}
	if r.PrefillDecode != nil {
		config["prefill_decode"] = r.PrefillDecode
	}
	filter := map[string]any{}
	if r.TraceFile != "" {
		filter["trace_file"] = r.TraceFile
	}
	if r.Shadow {
		filter["mode"] = "shadow"
	}
	config["filter"] = filter
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, name+"-router.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	p, err := testenv.Start(s.Dir, name+"-router", nil, s.router, "serve", "-config", file)
	if err != nil {
		return err
	}
	run.keep(p)
	return wait(ctx, p, "http://"+run.Router+"/readyz")
}

func (s *Stage) startEnvoy(name string, o envoy.Options, run *Running) error {
	var text bytes.Buffer
	if err := envoy.WriteBootstrap(&text, o); err != nil {
		return err
	}
	bootstrap := text.Bytes()
	if run.Router == "" {
		var err error
		if bootstrap, err = withoutExtProc(bootstrap); err != nil {
			return err
		}
	}
	e, err := testenv.StartEnvoy(s.Dir, name+"-envoy", bootstrap, o.Listen, o.Admin)
	if err != nil {
		return err
	}
	run.keep(e.Process)
	run.URL = e.URL
	return nil
}
