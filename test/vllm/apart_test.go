//go:build vllm

package vllm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// member is a replica by the address that Envoy dials, with its role.
type member struct{ addr, role string }

// through starts Envoy and the router in front of replicas that are split by mode.
func (f *trio) through(t *testing.T, name, mode string, members ...member) *fixture {
	t.Helper()
	g := &fixture{version: version{name: name}, t: t, dir: t.TempDir(), folder: f.folder, counted: map[string]int{}}
	copy(g.replicas[:], f.replicas[:])
	g.binary = must.Get(router())(t)
	local := testenv.Addresses(t, 4)
	g.listen, g.admin = local[0], local[1]
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %s}\nxds: {listen: \"\"}\n", g.listen, g.admin)
	fmt.Fprintf(&b, "envoy: {listen: %s, admin: %s, usage_share: 100, served_header: true, message_timeout: 20s}\n", local[2], local[3])
	// The delay of a running answer counts for a million times as much as one's own: a
	// replica with such an answer computes no prompt itself.
	fmt.Fprintf(&b, "prefill_decode: {mode: %s}\npolicy: {prefill_decode: {theta: 1000000}}\n", mode)
	fmt.Fprintf(&b, "filter: {token_budget: 15s}\nfleet:\n  replicas:\n")
	for _, m := range members {
		fmt.Fprintf(&b, "  - {address: %q, role: %s}\n", m.addr, m.role)
	}
	g.config = filepath.Join(g.dir, "warmroute.yaml")
	must.Do(t, os.WriteFile(g.config, []byte(b.String()), 0o644))
	g.startExtproc()
	g.awaitPartners(t, len(members))
	bootstrap := must.Get(exec.Command(g.binary, "envoy-config", "-static", "-config", g.config).Output())(t)
	if mode == "pull" {
		bootstrap = []byte(testenv.Patient(t, string(bootstrap), 30*time.Second, testenv.Keepalive))
	}
	g.envoy = must.Get(testenv.StartEnvoy(g.dir, "envoy", bootstrap, local[2], local[3]))(t)
	t.Cleanup(g.envoy.Stop)
	return g
}

// awaitPartners waits until the router knows the KV connector of each replica.
func (f *fixture) awaitPartners(t *testing.T, replicas int) {
	t.Helper()
	page := ""
	testenv.Until(t, time.Minute, "the router knows the replicas' connectors", func() bool {
		page, _ = testenv.Get(t.Context(), "http://"+f.admin+"/debug/replicas")
		return strings.Count(page, `"NixlConnector"`) == replicas
	}, func() any { return page })
}

// monologue is a long answer on the replica that answers: a prompt computed there would delay it.
type monologue struct {
	tokens atomic.Int64
	end    context.CancelFunc
	over   chan struct{}
}

// enough is how far an answer may go before another one takes its place: well before its end.
const enough = 2000

// beginMonologue starts a long answer and waits for its first token.
func (g *fixture) beginMonologue(t *testing.T) *monologue {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	k := &monologue{end: end, over: make(chan struct{})}
	body := []byte(`{"model":"` + served + `","prompt":[11,12,13],"max_tokens":3900,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"temperature":0}`)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, g.envoy.URL+"/v1/completions", bytes.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a long answer: %v, %v", resp, err)
	}
	go func() {
		defer close(k.over)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var chunk struct {
				Usage struct {
					Tokens int64 `json:"completion_tokens"`
				}
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if ok && json.Unmarshal([]byte(data), &chunk) == nil { // the last line is no JSON
				k.tokens.Store(chunk.Usage.Tokens) // a busy server puts several into one chunk
			}
		}
	}()
	testenv.Until(t, time.Minute, "a long answer's first tokens", func() bool { return k.tokens.Load() >= 2 })
	return k
}

func (k *monologue) stop() {
	k.end()
	<-k.over
}

// chats sends 48 chats: first turns, next turns and branches, streamed and not. Each is
// split; its text is that of a replica alone, and the hits and the tokens moved are those
// that the router has predicted.
func (f *trio) chats(t *testing.T) {
	g := f.through(t, "apart", "pull", member{f.replicas[0].Addr, "prefill"}, member{f.replicas[1].Addr, "decode"})
	f.talk(t, g, 5000, 12)
	for _, r := range f.replicas[:2] {
		page := testenv.Metrics(t, r.Addr)
		for _, name := range []string{"vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_notifications_after_expiry_total", "vllm:nixl_num_kv_expired_reqs_total"} {
			if v := sum(page, name); v != 0 {
				t.Errorf("%s is %v at %s", name, v, r.Addr)
			}
		}
	}
}

// sidecar sends chats to a replica behind llm-d's own sidecar, which sends the prefill legs.
func (f *trio) sidecar(t *testing.T) {
	program := filepath.Join(checkout.Root(), ".cache", "gateways", "pd-sidecar")
	if _, err := os.Stat(program); err != nil {
		t.Skip("llm-d's sidecar is not built: scripts/install-gateways.sh llmd")
	}
	port := must.Get(testenv.FreePorts(1))(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port[0])
	_, behind, _ := strings.Cut(f.replicas[1].Addr, ":")
	p := must.Get(testenv.Start(t.TempDir(), "sidecar", nil, program, "--port", strconv.Itoa(port[0]), "--vllm-port", behind, "--connector", "nixlv2", "--secure-proxy=false"))(t)
	t.Cleanup(p.Stop)
	must.Do(t, p.WaitHTTP(t.Context(), "http://"+addr+"/health"))
	g := f.through(t, "sidecar", "header", member{f.replicas[0].Addr, "prefill"}, member{addr, "decode"})
	f.talk(t, g, 6000, 3)
}

// talk sends so many conversations of four chats each, from a story on.
func (f *trio) talk(t *testing.T, g *fixture, from, conversations int) {
	g.awaitTrust(t)
	k := g.beginMonologue(t)
	defer func() { k.stop() }()
	n := 0
	turn := func(messages ...object) string {
		if k.tokens.Load() > enough {
			k.stop()
			k = g.beginMonologue(t)
		}
		n++
		body := completion(messages...)
		if n%2 == 0 {
			body["stream"] = true
		}
		return f.split(t, g, fmt.Sprintf("chat %d", n), body)
	}
	for i := range conversations {
		first := user(story(from + i))
		said := turn(first)
		second := []object{first, assistant(said), user("And what did the next one do?")}
		then := turn(second...)
		turn(append(second, assistant(then), user("And after that?"))...)
		turn(first, assistant(said), user("Begin another story instead."))
	}
}

// split sends one chat and holds it to the prediction. It returns the answer's text.
func (f *trio) split(t *testing.T, g *fixture, name string, body object) string {
	t.Helper()
	raw := must.Get(json.Marshal(body))(t)
	var before [2]map[string]float64
	for i := range before {
		before[i] = testenv.Metrics(t, f.replicas[i].Addr)
	}
	o := g.post(t, "/v1/chat/completions", raw)
	d := g.decision(t, o.decision.ID)
	g.quiet(t)
	rose := func(replica int, metric string) int {
		return int(sum(testenv.Metrics(t, f.replicas[replica].Addr), metric) - sum(before[replica], metric))
	}
	s := d.Split
	if o.status != http.StatusOK || s.Reason != decision.SplitDone || o.replica != s.Decode {
		t.Errorf("%s: status %d by %s, reason %s, split %+v: %.300s", name, o.status, o.replica, d.Reason, s, o.body)
	}
	streamed := body["stream"] != nil
	delete(body, "stream")
	text := o.text
	if text == "" {
		text = streamedText(o.body)
	}
	if alone := f.ask(t, 2, "/v1/chat/completions", body, "").text(); alone != text {
		t.Errorf("%s: answers %q, a replica alone %q", name, text, alone)
	}
	// vLLM's answers have P's hit, none if it is 0; a stream has no usage.
	if !streamed && max(o.reported, 0) != s.Predicted || s.Hit != nil && *s.Hit != s.Predicted {
		t.Errorf("%s: the answer's usage has %d cached tokens, P's hit was predicted to be %d, and its own answer is %s", name, o.reported, s.Predicted, number(s.Hit))
	}
	const hits, moved = "vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total"
	if p, h, m := rose(0, hits), rose(1, hits), rose(1, moved); p != s.Predicted || h != s.Held || m != s.Moves {
		t.Errorf("%s: P hit %d of %d predicted, D %d of %d, %d tokens moved of %d", name, p, s.Predicted, h, s.Held, m, s.Moves)
	}
	return text
}

// number prints a number that may be missing.
func number(n *int) string {
	if n == nil {
		return "silent"
	}
	return strconv.Itoa(*n)
}

// streamedText is the text of a streamed chat.
func streamedText(stream string) (text string) {
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if ok && json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			text += chunk.Choices[0].Delta.Content
		}
	}
	return text
}

// kills ends P, the router and D in turn under load: no request fails.
func (f *trio) kills(t *testing.T) {
	g := f.through(t, "kills", "pull", member{f.replicas[0].Addr, "prefill"}, member{f.replicas[1].Addr, "decode"}, member{f.replicas[2].Addr, "both"})
	g.awaitTrust(t)
	var mu sync.Mutex
	status := map[int]int{}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				raw, _ := json.Marshal(completion(user(story(7000 + w*1000 + i))))
				resp, err := http.Post(g.envoy.URL+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
				code := 0
				if err == nil {
					code = resp.StatusCode
					resp.Body.Close()
				}
				mu.Lock()
				status[code]++
				mu.Unlock()
			}
		})
	}
	more := func(n int) {
		mu.Lock()
		until := status[200] + n
		mu.Unlock()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			mu.Lock()
			done := status[200] >= until
			mu.Unlock()
			if done {
				return
			}
			if time.Now().After(end) {
				t.Errorf("%d more answers did not come in two minutes", n)
				return
			}
		}
	}
	more(20)
	if n := testenv.Metrics(t, g.admin)[`warmroute_split_decisions_total{reason="split"}`]; n == 0 {
		t.Error("no request was split before the kills")
	}
	// Parameters of a P that is dead by the time of their use: D computes the prompt.
	prompt := idPrompt(9000, 9320)
	orphaned := f.leg(t, 0, "/v1/completions", prompt)
	f.replicas[0].Kill()
	f.ask(t, 1, "/v1/completions", prompt, params(orphaned.Params))
	more(20)
	g.extproc.Kill()
	more(20)
	g.startExtproc()
	if err := g.envoy.WaitHealthy(t.Context(), "warmroute"); err != nil {
		t.Error(err)
	}
	more(20)
	f.replicas[1].Kill()
	more(20)
	stop()
	load.Wait()
	if len(status) != 1 {
		t.Errorf("statuses %v", status)
	}
}
