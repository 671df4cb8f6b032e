//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

const (
	served  = "qwen-tiny"
	adapter = "sql-lora"
)

// version is one vLLM release under test, with one model.
type version struct {
	name      string
	blockSize int
	blocks    int  // KV blocks of a replica: 16,384 tokens of a dense model
	adapters  bool // the second replica serves a LoRA adapter
	sources   bool // it reports its event sources itself
	model     string
	flags     []string // further flags of both replicas
	second    []string // further flags of the second replica
	holds     bool     // the router may hold requests
	nixl      bool     // they hand KV blocks to each other, and there is a third
}

// built holds the programs that all fixtures run.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// router and sidecar are built at first use.
var (
	router  = sync.OnceValues(func() (string, error) { return testenv.Build(built, "warmroute/cmd/extproc", "-race") })
	sidecar = sync.OnceValues(func() (string, error) { return testenv.Build(built, "warmroute/cmd/kvsub") })
)

// fixture is two replicas of a version behind Envoy, with extproc.
type fixture struct {
	version
	t        *testing.T
	dir      string
	folder   string      // of the model
	launched [2][]string // flags of the replicas
	replicas [2]*testenv.VLLM
	alone    *testenv.VLLM // a third replica, which Envoy does not know; see launchAlone
	envoy    *testenv.Envoy
	extproc  *testenv.Process
	binary   string
	listen   string
	admin    string
	service  string // extproc's index service
	config   string
	requests int
	counted  map[string]int // cached tokens in the usage of answers to single prompts, by request id
}

func boot(t *testing.T, v version) *fixture {
	t.Helper()
	f := &fixture{version: v, t: t, dir: t.TempDir(), counted: map[string]int{}}
	f.folder = must.Get(testenv.TinyModel(f.dir, v.model))(t)
	for i := range f.launched {
		f.launched[i] = append([]string{"--num-gpu-blocks-override", strconv.Itoa(v.blocks)}, v.flags...)
	}
	f.launched[1] = append(f.launched[1], v.second...)
	if v.adapters {
		path := must.Get(testenv.TinyAdapter(f.dir))(t)
		f.launched[1] = append(f.launched[1], "--enable-lora", "--max-lora-rank", "8", "--lora-modules", adapter+"="+path)
	}
	for i := range f.replicas {
		f.replicas[i] = f.launch(strconv.Itoa(i), f.launched[i])
	}
	f.binary = must.Get(router())(t) // while the replicas boot
	for _, r := range f.replicas {
		f.awaitHealth(r)
	}
	local := testenv.Addresses(t, 5)
	f.listen, f.admin, f.service = local[0], local[1], local[4]
	f.writeConfig()
	f.startExtproc()
	var b bytes.Buffer
	o := envoy.Options{Listen: local[2], Admin: local[3], ExtProc: []string{f.listen}, ServedHeader: true, UsageShare: new(100),
		MessageTimeout: 3 * time.Second, // above the router's own budget, see writeConfig
		Replicas:       []string{f.replicas[0].Addr, f.replicas[1].Addr}}
	if f.holds {
		o.Hold = 20 * time.Minute
	}
	must.Do(t, envoy.WriteBootstrap(&b, o))
	f.envoy = must.Get(testenv.StartEnvoy(f.dir, "envoy", b.Bytes(), o.Listen, o.Admin))(t)
	t.Cleanup(f.envoy.Stop)
	return f
}

func (f *fixture) launch(name string, flags []string) *testenv.VLLM {
	f.t.Helper()
	o := testenv.VLLMOptions{
		Version: f.name, Name: fmt.Sprintf("vllm-%s-%s", f.name, name), Model: f.folder, Served: served,
		BlockSize: f.blockSize, Flags: flags,
	}
	if f.nixl {
		o.Flags, o.Env = slices.Concat(flags, nixl), f.sideChannel()
	}
	v := must.Get(testenv.StartVLLM(f.dir, o))(f.t)
	f.t.Cleanup(v.Stop)
	return v
}

// launchAlone starts the third replica of those that hand KV blocks to each other, unless
// it has been started. An idle one costs some CPU: NIXL polls.
func (f *fixture) launchAlone() {
	f.t.Helper()
	if f.nixl && f.alone == nil {
		f.alone = f.launch("alone", f.launched[0])
	}
}

func (f *fixture) awaitHealth(r *testenv.VLLM) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // two minutes on idle cores
	defer cancel()
	must.Do(f.t, r.WaitHTTP(ctx, "http://"+r.Addr+"/health"))
}

// writeConfig writes extproc's configuration: addresses alone for a vLLM that
// reports the rest, the event endpoints too for one that does not. The tokenizer's
// files are found by the folder that the replicas report to have loaded.
func (f *fixture) writeConfig() {
	f.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %s}\nindex_service: {listen: %s}\nxds: {listen: \"\"}\nenvoy: {usage_share: 100}\n", f.listen, f.admin, f.service)
	// Budgets are for machines that are not booting Python: here exactness is tested, not speed.
	fmt.Fprintf(&b, "filter: {token_budget: 2s}\nfleet:\n  replicas:\n")
	for _, r := range f.replicas {
		fmt.Fprintf(&b, "  - address: %s\n", r.Addr)
		if !f.sources {
			fmt.Fprintf(&b, "    events: [{endpoint: %q, replay_endpoint: %q}]\n", r.Events, r.Replay)
		}
	}
	if f.name == "0.21.0" {
		// It has no /render for these routes, so nothing can confirm them.
		b.WriteString("tokens: {trust: [responses, messages]}\n")
	}
	if f.holds {
		b.WriteString("sessions: {share: 0.1}\n")
	}
	f.config = filepath.Join(f.dir, "warmroute.yaml")
	must.Do(f.t, os.WriteFile(f.config, []byte(b.String()), 0o644))
}

// toolFields are the fields of FunctionTool in the openai package that vLLM 0.21.0 installs.
const toolFields = "name, parameters, strict, type, allowed_callers, async_, defer_loading, description, output_schema"

// transformers is the version of the package this vLLM renders with.
func (f *fixture) transformers() string {
	f.t.Helper()
	root := checkout.Root()
	found, err := filepath.Glob(filepath.Join(root, ".cache", "vllm", f.name, "lib", "python3*", "site-packages", "transformers-*.dist-info"))
	if err != nil || len(found) != 1 {
		f.t.Fatalf("transformers of vLLM %s: %v %v", f.name, found, err)
	}
	v := strings.TrimPrefix(filepath.Base(found[0]), "transformers-")
	return strings.TrimSuffix(v, ".dist-info")
}

func (f *fixture) startExtproc() {
	f.t.Helper()
	p := must.Get(testenv.Start(f.dir, "extproc", nil, f.binary, "serve", "-config", f.config))(f.t)
	f.extproc = p
	p.StopAfter(f.t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must.Do(f.t, p.WaitHTTP(ctx, "http://"+f.admin+"/readyz"))
}

// outcome is a request, the router's prediction and vLLM's count.
type outcome struct {
	status   int
	replica  string // the replica that served, as Envoy reports it
	text     string
	reported int // cached tokens in the answer's usage, -1 = not reported
	hits     int // rise of vllm:prefix_cache_hits_total over all replicas
	decision decision.Record
	refused  bool // vLLM computed nothing of it: an error status, or an error in a stream that had begun with 200
	body     string
}

// send sends one request alone: it returns when the events it caused have
// arrived.
func (f *fixture) send(t *testing.T, path string, body map[string]any) outcome {
	t.Helper()
	raw := must.Get(json.Marshal(body))(t)
	return f.sendRaw(t, path, raw)
}

func (f *fixture) sendRaw(t *testing.T, path string, raw []byte) outcome {
	t.Helper()
	before, batches := f.hits(t), f.batches(t)
	o := f.post(t, path, raw)
	o.decision = f.decision(t, o.decision.ID)
	if full := 2 * max(1, o.decision.Prompts) * f.blockSize; full > 0 && o.decision.Tokens-o.decision.Predicted >= full {
		for end := time.Now().Add(longestSend); f.batches(t) == batches && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	f.quiet(t)
	o.hits = f.hits(t) - before
	if o.reported >= 0 && o.decision.Prompts == 1 {
		f.counted[o.decision.ID] = o.reported
	}
	return o
}

func (f *fixture) post(t *testing.T, path string, raw []byte) outcome {
	t.Helper()
	f.requests++
	id := fmt.Sprintf("live-%s-%d", f.name, f.requests)
	r := testenv.Post(t, f.envoy.URL+path, raw, "X-Request-Id", id)
	o := outcome{status: r.Status, replica: r.Header.Get(envoy.HeaderServed), reported: -1, body: string(r.Body)}
	o.decision.ID = id
	o.refused = o.status >= 400 || endsInError(r.Body)
	o.read(r.Body)
	return o
}

// read takes text and usage out of an answer of any of the four routes.
func (o *outcome) read(answer []byte) {
	var v struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
		Usage *struct {
			Prompt *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			Input *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"input_tokens_details"`
			Read *int `json:"cache_read_input_tokens"`
		}
	}
	if json.Unmarshal(answer, &v) != nil {
		return
	}
	if len(v.Choices) > 0 {
		o.text = v.Choices[0].Message.Content + v.Choices[0].Text
	}
	if v.Usage == nil {
		return
	}
	if v.Usage.Read != nil {
		o.reported = *v.Usage.Read
	}
	if v.Usage.Prompt != nil && v.Usage.Prompt.Cached != nil {
		o.reported = *v.Usage.Prompt.Cached
	}
	if v.Usage.Input != nil && v.Usage.Input.Cached != nil {
		o.reported = *v.Usage.Input.Cached
	}
}

// endsInError reports whether an answer is a stream with an error in it: a
// grammar that cannot be compiled is found out after the stream has begun.
func endsInError(answer []byte) bool {
	for line := range bytes.Lines(answer) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var event struct {
			Type  string
			Error json.RawMessage
		}
		if json.Unmarshal(data, &event) == nil && (event.Type == "error" || event.Type == "response.failed" || len(event.Error) > 0 && string(event.Error) != "null") {
			return true
		}
	}
	return false
}

// decision reads the router's record of a request.
func (f *fixture) decision(t *testing.T, id string) decision.Record {
	t.Helper()
	resp := must.Get(http.Get("http://" + f.admin + "/debug/explain?id=" + url.QueryEscape(id)))(t)
	defer resp.Body.Close()
	var v struct{ Decisions []decision.Record }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || len(v.Decisions) != 1 {
		t.Fatalf("explain %s: %d decisions, %v", id, len(v.Decisions), err)
	}
	return v.Decisions[0]
}

func sum(page map[string]float64, name string) float64 {
	total := 0.0
	for k, v := range page {
		if k == name || strings.HasPrefix(k, name+"{") {
			total += v
		}
	}
	return total
}

// hits is vLLM's own count of cached prompt tokens, over all replicas.
func (f *fixture) hits(t *testing.T) int {
	t.Helper()
	total := 0.0
	for _, r := range f.replicas {
		total += sum(testenv.Metrics(t, r.Addr), "vllm:prefix_cache_hits_total")
	}
	return int(total)
}

// longestSend bounds the wait for the blocks of a prompt that is new, which a thread of vLLM sends: on
// a busy machine it may do so later than the answer.
const longestSend = 5 * time.Second

// batches returns how many event batches the router has applied.
func (f *fixture) batches(t *testing.T) float64 {
	t.Helper()
	return sum(testenv.Metrics(t, f.admin), "warmroute_kv_batches_total")
}

// quiet waits until the event batches applied have not risen for 150 ms.
func (f *fixture) quiet(t *testing.T) {
	t.Helper()
	const still = 150 * time.Millisecond
	last, since := -1.0, time.Now()
	for time.Since(since) < still {
		if n := f.batches(t); n != last {
			last, since = n, time.Now()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// exact holds a request's prediction to vLLM's own counts.
func (o outcome) exact(t *testing.T, name string) {
	t.Helper()
	switch {
	case o.status != 200:
		t.Errorf("%s: status %d: %.300s", name, o.status, o.body)
	case !o.decision.Reason.Hint():
		t.Errorf("%s: no hint, reason %s", name, o.decision.Reason)
	case !strings.HasPrefix(o.decision.Chosen, o.replica):
		t.Errorf("%s: hinted %s, served by %s", name, o.decision.Chosen, o.replica)
	case o.decision.Predicted != o.hits:
		t.Errorf("%s: predicted %d cached tokens, vLLM's counter rose by %d (usage said %d; %d tokens, source %s)",
			name, o.decision.Predicted, o.hits, o.reported, o.decision.Tokens, o.decision.Source)
	case o.reported >= 0 && o.decision.Prompts == 1 && o.reported != o.decision.Predicted:
		t.Errorf("%s: predicted %d cached tokens, the answer's usage says %d", name, o.decision.Predicted, o.reported)
	}
}
