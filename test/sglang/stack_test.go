//go:build vllm

package sglang

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// stack is the replicas of all configurations behind one Envoy and one router.
type stack struct {
	t       *testing.T
	dir     string
	traffic []*traffic
	envoy   *testenv.Envoy
	router  *testenv.Process
	binary  string
	config  string
	listen  string
	admin   string
}

// start starts everything. The replicas answer requests before the router is there.
func start(t *testing.T) *stack {
	s := &stack{t: t, dir: t.TempDir()}
	var specs, all []string
	for i, c := range configs {
		folder := must.Get(testenv.TinyModel(s.dir, c.model))(t)
		k := &traffic{of: i, doubts: map[string]int{}, rng: rand.New(rand.NewPCG(29, uint64(i)))}
		for range perConfig {
			at := testenv.Addresses(t, 3)
			k.replicas = append(k.replicas, at[0])
			ports := strings.ReplaceAll(strings.Join(at, ","), "127.0.0.1:", "")
			specs = append(specs, c.name+","+folder+","+ports)
		}
		s.traffic, all = append(s.traffic, k), append(all, k.replicas...)
	}
	replicas := s.python(specs)
	s.binary = must.Get(testenv.Build(s.dir, "warmroute/cmd/extproc"))(t) // while they import
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, addr := range all {
		must.Do(t, replicas.WaitHTTP(ctx, "http://"+addr+"/ready"))
	}
	for _, k := range s.traffic {
		for _, addr := range k.replicas {
			for range earlier {
				var a answer
				b := k.next()
				testenv.Post(t, "http://"+addr+"/v1/completions", b).Into(t, &a)
				k.took(b, a.Choices[0].Text)
			}
		}
	}
	s.front(all)
	return s
}

// python starts the replicas.
func (s *stack) python(specs []string) *testenv.Process {
	root := checkout.Root()
	installed := filepath.Join(root, ".cache", "vllm")
	p := must.Get(testenv.Start(s.dir, "sglang", []string{"PYTHONPATH=" + filepath.Join(installed, "sglang-0.5.23"), "PYTHONDONTWRITEBYTECODE="},
		filepath.Join(installed, "0.32.0", "bin", "python"), append([]string{filepath.Join(root, "test", "sglang", "replicas.py")}, specs...)...))(s.t)
	s.t.Cleanup(p.Kill)
	return p
}

// front starts the router and Envoy.
func (s *stack) front(all []string) {
	local := testenv.Addresses(s.t, 4)
	s.listen, s.admin = local[0], local[1]
	text := fmt.Sprintf("listen: %s\nadmin: {listen: %s}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nenvoy: {usage_share: 100}\n"+
		"filter: {token_budget: 30s, body_wait: 2m}\nfleet:\n  replicas:\n", s.listen, s.admin)
	for _, addr := range all {
		text += "  - address: " + addr + "\n"
	}
	s.config = filepath.Join(s.dir, "warmroute.yaml")
	must.Do(s.t, os.WriteFile(s.config, []byte(text), 0o644))
	s.launch()
	var b bytes.Buffer
	o := envoy.Options{Listen: local[2], Admin: local[3], ExtProc: []string{s.listen}, ServedHeader: true, UsageShare: new(100), MessageTimeout: patience, Replicas: all}
	err := envoy.WriteBootstrap(&b, o)
	if err == nil {
		s.envoy, err = testenv.StartEnvoy(s.dir, "envoy", b.Bytes(), o.Listen, o.Admin)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.envoy.Stop)
}

// launch starts the router, and returns when it has the replicas' blocks and Envoy uses it.
func (s *stack) launch() {
	p := must.Get(testenv.Start(s.dir, "extproc", nil, s.binary, "serve", "-config", s.config))(s.t)
	s.router = p
	p.StopAfter(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	must.Do(s.t, p.WaitHTTP(ctx, "http://"+s.admin+"/readyz"))
	if s.envoy != nil {
		must.Do(s.t, s.envoy.WaitHealthy(ctx, "warmroute"))
	}
}

// settle waits until the router has every batch that the replicas have published.
func (s *stack) settle(t *testing.T, replicas []string) {
	t.Helper()
	for _, addr := range replicas {
		text := must.Get(testenv.Get(t.Context(), "http://"+addr+"/published"))(t)
		for end := time.Now().Add(patience); s.applied(t, addr) != text; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s has published %s batches, the router has %s", addr, text, s.applied(t, addr))
			}
		}
	}
}

// applied returns how many batches of a replica the router has, all of them since its start.
func (s *stack) applied(t *testing.T, addr string) string {
	page := must.Get(testenv.Get(t.Context(), "http://"+s.admin+"/metrics"))(t)
	return fmt.Sprint(testenv.Samples(page, "warmroute_kv_batches_total", "replica")[addr])
}

// send sends a completion through Envoy.
func (s *stack) send(t *testing.T, id string, b body, a *answer) {
	t.Helper()
	r := testenv.Post(t, s.envoy.URL+"/v1/completions", b, "X-Request-Id", id)
	r.Into(t, a)
	a.replica = r.Header.Get(envoy.HeaderServed)
}

// record reads the router's record of a request.
func (s *stack) record(t *testing.T, id string) *decision.Record {
	t.Helper()
	text := must.Get(testenv.Get(t.Context(), "http://"+s.admin+"/debug/explain?n=1&id="+url.QueryEscape(id)))(t)
	var v struct{ Decisions []decision.Record }
	if err := json.Unmarshal([]byte(text), &v); err != nil || len(v.Decisions) != 1 {
		t.Fatalf("explain %s: %d decisions, %v", id, len(v.Decisions), err)
	}
	return &v.Decisions[0]
}
