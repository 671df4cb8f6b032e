package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// binary builds extproc once for all tests, with the race detector.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "warmroute-e2e-")
	if err != nil {
		return "", err
	}
	return testenv.Build(dir, "warmroute/cmd/extproc", "-race")
})

// stack is Envoy in front of simulated replicas, with extproc.
type stack struct {
	t       *testing.T
	dir     string
	sims    []*vllmsim.Sim
	addrs   []string // where the replicas are found: the simulated ones', or their fronts'
	envoy   *testenv.Envoy
	extproc *testenv.Process
	listen  string // of extproc's gRPC
	admin   string // of extproc
	config  string // extproc's configuration file
}

// setup describes the stack to build.
type setup struct {
	replicas int
	sim      vllmsim.Options // of every replica; addresses are filled in
	others   []string        // further replicas, by address, that run already
	config   string          // further YAML of extproc's configuration
	whole    string          // its sections besides the addresses that it listens at, in place of the stack's
	envoy    envoy.Options   // further options; addresses are filled in
	// upstreamOnly: envoy.Replicas stand behind Envoy instead of the simulated ones.
	upstreamOnly bool
	front        func(replica string) string // puts something in front of a simulated replica
	bootstrap    func(string) string         // changes Envoy's bootstrap
}

const (
	// patience is a bound that no machine reaches, however busy: it detects hangs. A test
	// of a wait of the router or of Envoy sets that wait itself.
	patience = 2 * time.Minute
	// pollEvery is how often a page is read that a test waits for. The router has the race
	// detector, and writes none of its pages for nothing.
	pollEvery = 40 * time.Millisecond
	// patient are the router's waits on the path of a request, which would end it
	// without a hint on a busy machine.
	patient = "token_budget: 30s, body_wait: 2m"
)

// until waits for a condition.
func (st *stack) until(what string, ok func() bool) {
	st.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(pollEvery) {
		if time.Now().After(end) {
			counted := st.metrics()
			maps.DeleteFunc(counted, func(name string, v float64) bool {
				return v == 0 || !strings.HasPrefix(name, "warmroute_") || strings.Contains(name, "_bucket{")
			})
			st.t.Fatalf("not within %v: %s\n%v", patience, what, counted)
		}
	}
}

func start(t *testing.T, s setup) *stack {
	t.Helper()
	st := &stack{t: t, dir: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	for i := range s.replicas {
		o := s.sim
		o.Events, o.Replay, o.Seed = "127.0.0.1:0", "127.0.0.1:0", int64(i+1)
		sim := must.Get(vllmsim.New(o))(t)
		wg.Go(func() {
			if err := sim.Run(ctx); err != nil {
				t.Errorf("simulated replica %d: %v", i, err)
			}
		})
		st.sims = append(st.sims, sim)
		st.addrs = append(st.addrs, sim.Addr())
		if s.front != nil {
			st.addrs[i] = s.front(sim.Addr())
		}
	}
	st.addrs = append(st.addrs, s.others...)
	local := testenv.Addresses(t, 4)
	st.listen, st.admin = local[0], local[1]
	if s.whole != "" {
		st.writeWhole(s.whole)
	} else {
		st.writeConfig(s.config)
	}
	st.startExtproc()
	o := s.envoy
	o.ServedHeader = true
	impatient := o.MessageTimeout != 0
	if !impatient {
		o.MessageTimeout = patience
	}
	if o.UsageShare == nil {
		o.UsageShare = new(envoy.TrialUsageShare) // as writeConfig's
	}
	o.Listen, o.Admin, o.ExtProc = local[2], local[3], []string{st.listen}
	if !s.upstreamOnly {
		o.Replicas = append(o.Replicas, st.addrs...)
	}
	var buf bytes.Buffer
	must.Do(t, envoy.WriteBootstrap(&buf, o))
	boot := buf.String()
	if !impatient {
		boot = patiently(t, boot, o.Mode)
	}
	if s.bootstrap != nil {
		boot = s.bootstrap(boot)
	}
	st.envoy = must.Get(testenv.StartEnvoy(st.dir, "envoy", []byte(boot), o.Listen, o.Admin, "--file-flush-interval-msec", "100"))(t)
	t.Cleanup(st.envoy.Stop)
	return st
}

// patiently changes a bootstrap: Envoy waits as long for the router's connections and for
// its answers to health checks as for its decisions. That a router is dead, and not only
// without a core, is detected as soon as ever: it refuses connections.
func patiently(t *testing.T, boot string, mode envoy.Mode) string {
	t.Helper()
	waits := []string{"connect_timeout: 0.25s", "      timeout: 1s\n      unhealthy_interval"}
	if mode == envoy.FullDuplex {
		waits = append(waits, testenv.Keepalive)
	}
	return testenv.Patient(t, boot, patience, waits...)
}

// writeConfig writes extproc's configuration: the replicas' addresses and more.
func (st *stack) writeConfig(more string) {
	st.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nlame_duck: 0s\nadmin: {listen: %s}\n", st.listen, st.admin)
	if !strings.Contains(more, "index_service:") {
		b.WriteString("index_service: {listen: \"\"}\n") // stacks of other tests may run
	}
	if !strings.Contains(more, "xds:") {
		b.WriteString("xds: {listen: \"\"}\n")
	}
	b.WriteString("fleet:\n")
	if strings.Contains(more, "sessions:") {
		fmt.Fprintf(&b, "  dead_after: %v\n", patience) // no request is held for a replica that counts as dead
	}
	b.WriteString("  replicas:\n")
	for i := range st.sims {
		fmt.Fprintf(&b, "  - address: %s\n", st.addrs[i])
	}
	if !strings.Contains(more, "envoy:") {
		fmt.Fprintf(&b, "envoy: {usage_share: %d}\n", envoy.TrialUsageShare) // what answers tell is tested everywhere
	}
	if !strings.Contains(more, "filter:") {
		b.WriteString("filter: {" + patient + "}\n")
	}
	b.WriteString(more)
	st.config = filepath.Join(st.dir, "warmroute.yaml")
	must.Do(st.t, os.WriteFile(st.config, []byte(b.String()), 0o644))
}

// writeWhole writes extproc's configuration: the addresses that it listens at, and sections.
func (st *stack) writeWhole(sections string) {
	st.t.Helper()
	st.config = filepath.Join(st.dir, "warmroute.yaml")
	config := fmt.Sprintf("listen: %s\nlame_duck: 0s\nadmin: {listen: %s}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfilter: {%s}\n%s", st.listen, st.admin, patient, sections)
	must.Do(st.t, os.WriteFile(st.config, []byte(config), 0o644))
}

// startExtproc starts the router and waits until it is ready.
func (st *stack) startExtproc() {
	st.t.Helper()
	path := must.Get(binary())(st.t)
	// The race detector would sleep for 1 s at the end of every process.
	p := must.Get(testenv.Start(st.dir, "extproc", []string{"GORACE=atexit_sleep_ms=20"}, path, "serve", "-config", st.config))(st.t)
	st.extproc = p
	p.StopAfter(st.t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.Do(st.t, p.WaitHTTP(ctx, "http://"+st.admin+"/readyz"))
	if st.envoy == nil {
		return
	}
	must.Do(st.t, st.envoy.WaitHealthy(ctx, "warmroute"))
}

// answer is a client's view of one completion.
type answer struct {
	status  int
	replica string // of the simulated replica that served, "" when unknown
	cached  int    // the replica's own count of cached prompt tokens
	prompt  int
	text    string
}

// message of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chat sends one chat completion through Envoy.
func (st *stack) chat(messages []message, maxTokens int) answer {
	st.t.Helper()
	return st.post("/v1/chat/completions", chatBody(st.t, messages, maxTokens))
}

func chatBody(t *testing.T, messages []message, maxTokens int) []byte {
	t.Helper()
	return must.Get(json.Marshal(map[string]any{"model": "sim", "messages": messages, "max_tokens": maxTokens}))(t)
}

// post sends a body through Envoy.
func (st *stack) post(path string, body []byte) answer {
	st.t.Helper()
	r := testenv.Post(st.t, st.envoy.URL+path, body)
	a := answer{status: r.Status, replica: r.Header.Get(envoy.HeaderServed)}
	var v struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
		Usage struct {
			PromptTokens        int `json:"prompt_tokens"`
			PromptTokensDetails struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if json.Unmarshal(r.Body, &v) == nil && len(v.Choices) > 0 {
		a.text = v.Choices[0].Message.Content + v.Choices[0].Text
		a.cached, a.prompt = v.Usage.PromptTokensDetails.CachedTokens, v.Usage.PromptTokens
	}
	return a
}

// metrics reads extproc's metrics: name with labels → value.
func (st *stack) metrics() map[string]float64 {
	st.t.Helper()
	return testenv.Metrics(st.t, st.admin)
}

// reasons returns the number of decisions of each reason.
func (st *stack) reasons() map[string]int {
	st.t.Helper()
	return testenv.Reasons(st.t, st.admin)
}

// wantReasons holds a run's reason codes to its requests: they sum up, and at
// least share of them were hints.
func (st *stack) wantReasons(requests int, share float64) map[string]int {
	st.t.Helper()
	reasons := st.reasons()
	sum, hints := 0, 0
	for reason, n := range reasons {
		sum += n
		if decision.Reason(reason).Hint() {
			hints += n
		}
	}
	if sum != requests {
		st.t.Errorf("reason codes sum to %d, requests were %d: %v", sum, requests, reasons)
	}
	if float64(hints) < share*float64(requests) {
		st.t.Errorf("%d of %d requests got a hint, want a share of %.2f: %v", hints, requests, share, reasons)
	}
	return reasons
}

// settled waits until extproc has applied every batch the replicas published.
func (st *stack) settled() {
	st.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		want := 0.0
		for _, sim := range st.sims {
			want += float64(sim.Published(0))
		}
		got := 0.0
		for name, v := range st.metrics() {
			if strings.HasPrefix(name, "warmroute_kv_batches_total{") && strings.Contains(name, `result="applied"`) {
				got += v
			}
		}
		if got >= want {
			return
		}
		if time.Now().After(deadline) {
			st.t.Fatalf("extproc applied %v of %v event batches", got, want)
		}
		time.Sleep(pollEvery)
	}
}
