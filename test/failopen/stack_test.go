package failopen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// binaries builds the stacks' programs, once.
var binaries = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "warmroute-failopen-")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, pkg := range map[string]string{"extproc": "warmroute/cmd/extproc", "vllmsim": "warmroute/lab/cmd/vllmsim"} {
		if out[name], err = testenv.Build(dir, pkg); err != nil {
			return nil, err
		}
	}
	return out, nil
})

func binary(t *testing.T, name string) string {
	t.Helper()
	all := must.Get(binaries())(t)
	return all[name]
}

// replica is a simulated vLLM in a process of its own, with its event ports
// behind gates.
type replica struct {
	*testenv.Process
	t              *testing.T // at its end the replica is stopped
	name           string
	addr           string
	events, replay *gate
	args           []string
	role           string // in the router's configuration, "" = both
}

func (r *replica) start(dir string) {
	r.t.Helper()
	r.launch(dir)
	r.wait()
}

// launch starts the replica, wait waits until it answers.
func (r *replica) launch(dir string) {
	r.t.Helper()
	r.Process = must.Get(testenv.Start(dir, r.name, nil, binary(r.t, "vllmsim"), r.args...))(r.t)
	r.t.Cleanup(r.Stop)
}

func (r *replica) wait() {
	r.t.Helper()
	wait(r.t, r.Process, "http://"+r.addr+"/health")
}

// router is extproc, started and ended at will on the same addresses.
type router struct {
	*testenv.Process
	t      *testing.T
	dir    string
	name   string
	listen string
	admin  string
	config string // file
	good   string // its content
}

func newRouter(t *testing.T, dir, name string, replicas []*replica) *router {
	a := testenv.Addresses(t, 2)
	r := &router{t: t, dir: dir, name: name, listen: a[0], admin: a[1], config: filepath.Join(dir, name+".yaml")}
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nlame_duck: 0s\nadmin: {listen: %s}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfleet:\n  replicas:\n", r.listen, r.admin)
	for _, rep := range replicas {
		fmt.Fprintf(&b, "  - address: %s\n    events: [{endpoint: %q, replay_endpoint: %q}]\n", rep.addr, "tcp://"+rep.events.Addr, "tcp://"+rep.replay.Addr)
		if rep.role != "" {
			fmt.Fprintf(&b, "    role: %s\n", rep.role)
		}
	}
	r.good = b.String()
	r.write(r.good)
	return r
}

func (r *router) write(config string) {
	r.t.Helper()
	must.Do(r.t, os.WriteFile(r.config, []byte(config), 0o644))
}

// launch starts the router with its standard error in the file to ("" = its log file).
func (r *router) launch(to string) {
	r.t.Helper()
	program, args := binary(r.t, "extproc"), []string{"serve", "-config", r.config}
	if to != "" {
		program, args = "sh", append([]string{"-c", `exec "$0" "$@" 2>` + to, program}, args...)
	}
	r.Process = must.Get(testenv.Start(r.dir, r.name, nil, program, args...))(r.t)
	r.t.Cleanup(r.Stop)
}

func (r *router) start() { r.startTo("") }

func (r *router) startTo(to string) {
	r.t.Helper()
	r.launch(to)
	wait(r.t, r.Process, "http://"+r.admin+"/readyz")
}

func wait(t *testing.T, p *testenv.Process, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must.Do(t, p.WaitHTTP(ctx, url))
}

// stack is Envoy before replicas, with a router, and another one where
// configured.
type stack struct {
	t        *testing.T
	dir      string
	replicas []*replica
	router   *router
	standby  *router
	envoy    *testenv.Envoy
	send     load // for every name of every model
}

// options describe a stack.
type options struct {
	mode     envoy.Mode
	standby  bool
	upstream string // stands behind Envoy in the replicas' place; "" = the replicas do
	xds      bool   // Envoy takes everything from the router
	models   int    // of two replicas each, with an alias; 0 = one of three
	apart    bool   // two replicas compute prompts, and two others answer
}

func start(t *testing.T, o options) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir()}
	names, count := []string{"sim"}, 3
	if o.models > 0 {
		names, count = nil, 2*o.models
		for m := range o.models {
			names = append(names, fmt.Sprint("model-", m), fmt.Sprint("alias-", m))
		}
	}
	s.send = loop(names...)
	if o.apart {
		s.send, count = cold, 4
	}
	for i := range count {
		a := testenv.Addresses(t, 3)
		r := &replica{t: t, name: fmt.Sprint("replica-", i), addr: a[0], events: newGate(t, a[1]), replay: newGate(t, a[2])}
		r.args = []string{"-listen", a[0], "-events", a[1], "-replay", a[2], "-blocks", "4096", "-prefill-rate", "100000", "-decode-rate", "200"}
		if o.models > 0 {
			r.args = append(r.args, "-model", fmt.Sprint("model-", i/2), "-alias", fmt.Sprint("alias-", i/2))
		}
		if o.apart {
			r.apart(i)
		}
		r.start(s.dir)
		s.replicas = append(s.replicas, r)
	}
	s.router = newRouter(t, s.dir, "extproc", s.replicas)
	a := testenv.Addresses(t, 3)
	if o.xds {
		own := fmt.Sprintf("xds: {listen: %s, state: %s}\nenvoy: {listen: %s, admin: %s, mode: %s, usage_share: 100}\n", a[2], filepath.Join(s.dir, "state"), a[0], a[1], o.mode)
		s.router.good = strings.Replace(s.router.good, "xds: {listen: \"\"}\n", own, 1)
		s.router.write(s.router.good)
	}
	eo := envoy.Options{Listen: a[0], Admin: a[1], ExtProc: []string{s.router.listen}, Mode: o.mode, UsageShare: new(100)}
	if o.apart {
		eo.Split = s.splits()
	}
	s.router.start()
	if o.standby {
		s.standby = newRouter(t, s.dir, "standby", s.replicas)
		s.standby.start()
		eo.Standby = s.standby.listen
	}
	for _, r := range s.replicas {
		eo.Replicas = append(eo.Replicas, r.addr)
	}
	if o.upstream != "" {
		eo.Replicas = []string{o.upstream}
	}
	if o.mode == streamed {
		eo.Mode = envoy.Buffered
	}
	var boot bytes.Buffer
	must.Do(t, envoy.WriteBootstrap(&boot, eo))
	if o.xds {
		boot.Reset()
		printed := exec.Command(binary(t, "extproc"), "envoy-config", "-config", s.router.config)
		printed.Stdout, printed.Stderr = &boot, os.Stderr
		must.Do(t, printed.Run())
	}
	text := strings.Replace(boot.String(), "request_body_mode: "+string(eo.Mode), "request_body_mode: "+string(o.mode), 1)
	s.envoy = must.Get(testenv.StartEnvoy(s.dir, "envoy", []byte(text), a[0], a[1]))(t)
	t.Cleanup(s.envoy.Stop)
	return s
}

// found waits until Envoy uses the router again.
func (s *stack) found() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.envoy.WaitHealthy(ctx, "warmroute"); err != nil {
		s.t.Error(err)
	}
}

// streamed is the body mode that no configuration of ours has: no hint is
// possible once the headers are gone.
const streamed envoy.Mode = "STREAMED"

// metric is the sum over a router's metrics whose name with labels begins so.
func (r *router) metric(begin string) float64 {
	r.t.Helper()
	sum := 0.0
	for name, v := range testenv.Metrics(r.t, r.admin) {
		if strings.HasPrefix(name, begin) {
			sum += v
		}
	}
	return sum
}

// stat is one of Envoy's counters.
func (s *stack) stat(name string) int {
	s.t.Helper()
	return testenv.EnvoyStat(s.t, strings.TrimPrefix(s.envoy.Admin, "http://"), name)
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second}
	resp := must.Get(client.Get(url))(t)
	defer resp.Body.Close()
	return string(must.Get(io.ReadAll(resp.Body))(t))
}

// until polls for the effect that a fault must have.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not seen within a minute: %s", what)
			return
		}
	}
}

// gate is a port before another one that a test closes and opens.
type gate struct {
	*testenv.Gate
	t *testing.T
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	g := must.Get(testenv.NewGate(to))(t)
	t.Cleanup(g.Close)
	return &gate{g, t}
}

func (g *gate) open() {
	g.t.Helper()
	must.Do(g.t, g.Open())
}
