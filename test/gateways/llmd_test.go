//go:build gateways

package gateways

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/testenv"
)

// The ports of a pod with llm-d's sidecar: what Envoy calls, and vLLM behind it.
const (
	sidecarPort = "8100"
	behindPort  = "8200"
)

// sidecars is a stack with prefill_decode.mode header: two replicas compute prompts, and one
// answers behind llm-d's own sidecar.
type sidecars struct {
	t        *testing.T
	prefill  [2]string // "ip:port"
	decode   string    // of its vLLM; the sidecar is in front of it
	front    *testenv.Envoy
	router   *router
	requests int
	traps    chan bool
}

func startSidecars(t *testing.T) *sidecars {
	t.Helper()
	dir := t.TempDir()
	s := &sidecars{t: t, decode: "127.0.0.1:" + behindPort, prefill: [2]string{podIP(1) + ":8000", podIP(2) + ":8000"}}
	sim := func(name, listen, ip string) {
		p := start(t, dir, name, "vllmsim", "-listen", listen, "-events", ip+":5557", "-replay", ip+":5558", "-connector", "NixlConnector",
			"-blocks", "8192", "-prefill-rate", "100000", "-decode-rate", "500", "-handover", "-1s", "-transfer-rate", "-1")
		answers(t, p, "http://"+listen+"/health")
	}
	for i, addr := range s.prefill {
		sim(fmt.Sprint("prefill-", i), addr, podIP(i+1))
	}
	sim("decode", s.decode, podIP(3))
	sidecar := podIP(3) + ":" + sidecarPort
	p := start(t, dir, "sidecar", installed(t, "pd-sidecar"), "--port", sidecarPort, "--vllm-port", behindPort, "--connector", "nixlv2", "--secure-proxy=false")
	answers(t, p, "http://"+sidecar+"/health")

	s.router = &router{t: t, dir: dir, file: filepath.Join(dir, "warmroute.yaml")}
	config := fmt.Sprintf(`listen: 127.0.0.1:9002
admin: {listen: %q}
xds: {listen: ""}
envoy: {listen: 127.0.0.1:10000, admin: 127.0.0.1:10001}
prefill_decode: {mode: header}
policy: {prefill_decode: {handover: 0.001}}
fleet:
  replicas:
  - {address: %q, role: prefill}
  - {address: %q, role: prefill}
  - {address: %q, role: decode}
`, strings.TrimPrefix(routerAdmin, "http://"), s.prefill[0], s.prefill[1], sidecar)
	if err := os.WriteFile(s.router.file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.router.start()
	built, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := exec.Command(built["extproc"], "envoy-config", "-static", "-config", s.router.file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if s.front, err = testenv.StartEnvoy(dir, "envoy", bootstrap, "127.0.0.1:10000", "127.0.0.1:10001"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.front.Stop)
	s.trap()
	return s
}

// trap listens where the clients of this test would have the sidecar send their prompts.
func (s *sidecars) trap() {
	s.t.Helper()
	l, err := net.Listen("tcp", podIP(5)+":8000")
	if err != nil {
		s.t.Fatal(err)
	}
	s.traps = make(chan bool, 100)
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.traps <- true
			_ = c.Close()
		}
	}()
	s.t.Cleanup(func() { _ = l.Close(); <-done })
}

// ask sends a request whose client names a replica for the prefill itself, and returns its
// answer and its id.
func (s *sidecars) ask(t *testing.T, at string, body string) (text, id string) {
	t.Helper()
	s.requests++
	id = fmt.Sprint("llmd-", s.requests)
	var a struct{ Choices []struct{ Text string } }
	testenv.Post(t, at+"/v1/completions", []byte(body), "X-Request-Id", id, envoy.HeaderPrefiller, podIP(5)+":8000").Into(t, &a)
	if len(a.Choices) != 1 {
		t.Fatalf("%d answers", len(a.Choices))
	}
	return a.Choices[0].Text, id
}

// record is the router's record of a request.
func (s *sidecars) record(t *testing.T, id string) decision.Record {
	t.Helper()
	page, err := testenv.Get(t.Context(), routerAdmin+"/debug/explain?id="+url.QueryEscape(id))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Decisions []decision.Record }
	if err := json.Unmarshal([]byte(page), &v); err != nil || len(v.Decisions) != 1 {
		t.Fatalf("%d decisions of %s, %v", len(v.Decisions), id, err)
	}
	return v.Decisions[0]
}

// counted are counters of a replica.
func counted(t *testing.T, addr string) (prompts, hits, moved int) {
	t.Helper()
	m := testenv.Metrics(t, addr)
	read := func(name string) int { return int(m[name+`{engine="0",model_name="sim"}`]) }
	return read("vllm:prompt_tokens_total"), read("vllm:prefix_cache_hits_total"), read("vllm:external_prefix_cache_hits_total")
}

// longPrompt is a request of 4,000 tokens.
func longPrompt(seed int) string {
	return fmt.Sprintf(`{"model":"sim","max_tokens":4,"prompt":[%s]}`, testenv.Tokens(uint64(seed), 4000))
}

// TestSidecarOfLLMD: llm-d's own sidecar has the replica compute the prompt that the router
// names, and no other; the replica behind it pulls what it lacks, as predicted. A client
// names nobody.
func TestSidecarOfLLMD(t *testing.T) {
	s := startSidecars(t)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	until(t, "the router knows what the replicas hand to each other", func() bool {
		page, err := testenv.Get(ctx, routerAdmin+"/debug/replicas")
		return err == nil && strings.Count(page, `"NixlConnector"`) == 3
	})
	for i := range 20 {
		warm, other := s.prefill[i%2], s.prefill[1-i%2]
		body := longPrompt(i)
		alone, _ := s.ask(t, "http://"+warm, body) // from now on it has the prompt, and D has not
		s.settled(t, warm)
		_, hitsBefore, _ := counted(t, warm)
		elsewhere, _, _ := counted(t, other)
		_, heldBefore, movedBefore := counted(t, s.decode)
		text, id := s.ask(t, s.front.URL, body)
		rec := s.record(t, id).Split
		_, hits, _ := counted(t, warm)
		idle, _, _ := counted(t, other)
		_, held, moved := counted(t, s.decode)
		if rec.Reason != decision.SplitDone || rec.Prefill != warm || idle != elsewhere {
			t.Errorf("request %d: %s at %s, and the other replica computed %d tokens; want a split at %s", i, rec.Reason, rec.Prefill, idle-elsewhere, warm)
		}
		if hits-hitsBefore != rec.Predicted || held-heldBefore != rec.Held || moved-movedBefore != rec.Moves || rec.Moves != 4000-rec.Held {
			t.Errorf("request %d: P hit %d tokens of %d, D %d of %d, and pulled %d of %d", i, hits-hitsBefore, rec.Predicted, held-heldBefore, rec.Held, moved-movedBefore, rec.Moves)
		}
		if text != alone {
			t.Errorf("request %d: answers %q, a replica alone %q", i, text, alone)
		}
		// Once more: not split, so that the client's header would be the only one.
		if again, id := s.ask(t, s.front.URL, body); again != text || s.record(t, id).Split.Reason == decision.SplitDone {
			t.Errorf("request %d once more: %q, want %q, and no split", i, again, text)
		}
	}
	if n := len(s.traps); n > 0 {
		t.Errorf("the sidecar called the address of a client's header %d times", n)
	}
	// The sidecar itself would call it.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+podIP(3)+":"+sidecarPort+"/v1/completions", strings.NewReader(longPrompt(100)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(envoy.HeaderPrefiller, podIP(5)+":8000")
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
	if len(s.traps) == 0 {
		t.Error("the sidecar does not call the address of a client's header: this test proves nothing")
	}
}

// settled waits until the router has the events of a replica's blocks.
func (s *sidecars) settled(t *testing.T, addr string) {
	t.Helper()
	last := -1.0
	until(t, "the events of "+addr+" have arrived", func() bool {
		n := s.router.metric(t, "warmroute_kv_batches_total", "replica", addr)
		still := n == last
		last = n
		return still
	})
}
