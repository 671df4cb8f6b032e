package main

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
	"warmroute/internal/testenv"
)

// fleet is what the replicas have in common.
type fleet struct {
	replicas, blocks, blockSize int
	maxModelLen                 int
	prefillRate                 float64
	answer                      int // tokens
	seed                        int64
	model                       string
}

// passKind is who chooses the replica.
type passKind string

const (
	leastRequest passKind = "least_request"
	warmroute    passKind = "warmroute"
)

// stage runs passes, each on processes of its own, so that every one starts
// with cold caches.
type stage struct {
	dir      string
	fleet    fleet
	progress *progress

	simulator, router string // binaries
}

// build installs Envoy and compiles what runs beside it.
func (s *stage) build(ctx context.Context) (err error) {
	s.progress.say("installing Envoy %s (once) and building", envoy.Version)
	if _, err := testenv.EnvoyBinary(); err != nil {
		return err
	}
	if s.simulator, err = testenv.Build(s.dir, "warmroute/cmd/vllmsim"); err != nil {
		return err
	}
	if s.router, err = testenv.Build(s.dir, "warmroute/cmd/extproc"); err != nil {
		return err
	}
	return ctx.Err()
}

// startTimeout is how long a program may take to answer on a busy machine.
const startTimeout = 30 * time.Second

// pass plays the traffic once.
func (s *stage) pass(ctx context.Context, kind passKind, t *traffic) (*pass, error) {
	s.progress.say("%s: starting", kind)
	var started []*testenv.Process
	defer func() {
		for _, p := range slices.Backward(started) {
			p.Stop()
		}
	}()
	keep := func(p *testenv.Process) { started = append(started, p) }
	replicas, err := s.startReplicas(ctx, kind, keep)
	if err != nil {
		return nil, err
	}
	ports, err := testenv.FreePorts(4)
	if err != nil {
		return nil, err
	}
	local := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	o := envoy.Options{Listen: local(0), Admin: local(1), ExtProc: local(2), Replicas: replicas}
	admin := local(3)
	if kind == warmroute {
		if err := s.startRouter(ctx, o.ExtProc, admin, replicas, keep); err != nil {
			return nil, err
		}
	}
	url, err := s.startEnvoy(kind, o, keep)
	if err != nil {
		return nil, err
	}
	p := &pass{name: string(kind)}
	p.report = t.send(ctx, url, s.fleet.model, func(done, failed int) { s.progress.count(string(kind), done, failed) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p, s.account(ctx, p, kind, replicas, admin)
}

// account asks the replicas and the router what they did, and works out the bounds.
func (s *stage) account(ctx context.Context, p *pass, kind passKind, replicas []string, admin string) (err error) {
	for _, addr := range replicas {
		c, err := count(ctx, addr)
		if err != nil {
			return err
		}
		p.replicas = append(p.replicas, c)
	}
	if kind == warmroute {
		page, err := get(ctx, "http://"+admin+"/metrics")
		if err != nil {
			return fmt.Errorf("the router's metrics: %w", err)
		}
		p.reasons = map[string]int{}
		for reason, n := range samples(page, "warmroute_decisions_total", "reason") {
			p.reasons[reason] = int(n)
		}
	}
	p.ideal[0], p.ideal[1], err = bounds(ctx, p.report, s.fleet, replicas[0])
	return err
}

// wait is WaitHTTP with the stage's patience.
func wait(ctx context.Context, p *testenv.Process, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := p.WaitHTTP(ctx, url)
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled // Ctrl-C: the log of a program that was stopped tells nothing
	}
	return err
}

// startReplicas starts the simulators and returns their addresses.
func (s *stage) startReplicas(ctx context.Context, kind passKind, keep func(*testenv.Process)) (addrs []string, err error) {
	ports, err := testenv.FreePorts(3 * s.fleet.replicas)
	if err != nil {
		return nil, err
	}
	var procs []*testenv.Process
	for i := range s.fleet.replicas {
		local := func(j int) string { return fmt.Sprintf("127.0.0.1:%d", ports[3*i+j]) }
		p, err := testenv.Start(s.dir, fmt.Sprintf("%s-replica-%d", kind, i), nil, s.simulator,
			"-listen", local(0), "-events", local(1), "-replay", local(2), "-topic", "kv@"+local(0)+"@"+s.fleet.model, "-model", s.fleet.model,
			"-blocks", fmt.Sprint(s.fleet.blocks), "-block-size", fmt.Sprint(s.fleet.blockSize), "-max-model-len", fmt.Sprint(s.fleet.maxModelLen),
			"-prefill-rate", fmt.Sprint(s.fleet.prefillRate), "-seed", fmt.Sprint(s.fleet.seed))
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

// startRouter starts extproc on the smallest useful configuration and waits
// until it has learned the replicas.
func (s *stage) startRouter(ctx context.Context, listen, admin string, replicas []string, keep func(*testenv.Process)) error {
	type replica struct {
		Address string `yaml:"address"`
	}
	var list []replica
	for _, r := range replicas {
		list = append(list, replica{r})
	}
	text, err := yaml.Marshal(map[string]any{
		"listen":        listen,
		"admin":         map[string]any{"listen": admin},
		"index_service": map[string]any{"listen": ""}, // its port may be taken, and nobody asks
		"fleet":         map[string]any{"replicas": list},
	})
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "warmroute.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	p, err := testenv.Start(s.dir, "extproc", nil, s.router, "serve", "-config", file)
	if err != nil {
		return err
	}
	keep(p)
	return wait(ctx, p, "http://"+admin+"/readyz")
}

func (s *stage) startEnvoy(kind passKind, o envoy.Options, keep func(*testenv.Process)) (url string, err error) {
	var text bytes.Buffer
	if err := envoy.WriteBootstrap(&text, o); err != nil {
		return "", err
	}
	bootstrap := text.Bytes()
	if kind == leastRequest {
		if bootstrap, err = withoutExtProc(bootstrap); err != nil {
			return "", err
		}
	}
	e, err := testenv.StartEnvoy(s.dir, string(kind)+"-envoy", bootstrap, o.Listen, o.Admin)
	if err != nil {
		return "", err
	}
	keep(e.Process)
	return e.URL, nil
}

// withoutExtProc takes the ext_proc filter out of a bootstrap and leaves all
// else: then no request has a hint, and the same cluster falls back to
// least_request.
func withoutExtProc(bootstrap []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(bootstrap, &root); err != nil {
		return nil, fmt.Errorf("read the bootstrap: %w", err)
	}
	if n := dropFilter(&root); n != 1 {
		return nil, fmt.Errorf("the bootstrap has %d ext_proc filters, expected 1", n)
	}
	return yaml.Marshal(&root)
}

// dropFilter removes the ext_proc filter below n and returns how many there were.
func dropFilter(n *yaml.Node) (dropped int) {
	if n.Kind == yaml.SequenceNode {
		n.Content = slices.DeleteFunc(n.Content, func(item *yaml.Node) bool {
			if item.Kind != yaml.MappingNode {
				return false
			}
			for i := 0; i+1 < len(item.Content); i += 2 {
				if item.Content[i].Value == "name" && item.Content[i+1].Value == "envoy.filters.http.ext_proc" {
					dropped++
					return true
				}
			}
			return false
		})
	}
	for _, c := range n.Content {
		dropped += dropFilter(c)
	}
	return dropped
}
