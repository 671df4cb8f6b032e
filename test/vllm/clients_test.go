//go:build vllm

package vllm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// clients: the official OpenAI and Anthropic clients, which vLLM installs with
// itself, hold two turns of a conversation on every route. The second is warm,
// on the first's replica, and every prediction is exact.
func (f *fixture) clients(t *testing.T) {
	ask := f.startClients(t)
	for i, call := range []string{"chat", "chat_stream", "completion", "responses", "anthropic_messages", "anthropic_stream"} {
		t.Run(call, func(t *testing.T) {
			turn := clientCall{Call: call, Text: story(400 + i)}
			first, text := f.throughClient(t, ask, turn)
			turn.Answer, turn.More = text, "And what did the next one do?"
			second, _ := f.throughClient(t, ask, turn)
			if first.decision.Chosen != second.decision.Chosen {
				t.Errorf("the first turn went to %s, the second to %s", first.decision.Chosen, second.decision.Chosen)
			}
			if second.hits == 0 || second.decision.Reason != "warm" {
				t.Errorf("the second turn hit %d tokens, reason %s", second.hits, second.decision.Reason)
			}
		})
	}
}

// clientCall is one line to clients.py, clientAnswer one from it.
type clientCall struct {
	Call   string `json:"call"`
	ID     string `json:"id"`
	Text   string `json:"text"`
	Answer string `json:"answer,omitempty"`
	More   string `json:"more,omitempty"`
}

type clientAnswer struct {
	Text   string
	Cached *int
	Error  string
}

// startClients runs clients.py with the Python of the vLLM under test.
func (f *fixture) startClients(t *testing.T) func(clientCall) clientAnswer {
	t.Helper()
	root := checkout.Root()
	// A client that hangs is killed with the test's patience for one version.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, filepath.Join(root, ".cache", "vllm", f.name, "bin", "python"),
		filepath.Join(root, "test", "vllm", "clients.py"), f.envoy.URL, served)
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("clients.py: %v", err)
		}
		cancel()
	})
	lines := bufio.NewScanner(out)
	return func(c clientCall) clientAnswer {
		t.Helper()
		must.Do(t, json.NewEncoder(in).Encode(c))
		if !lines.Scan() {
			t.Fatalf("clients.py ended: %v", lines.Err())
		}
		var a clientAnswer
		must.Do(t, json.Unmarshal(lines.Bytes(), &a))
		return a
	}
}

// throughClient has a client send one request alone and holds its prediction to
// vLLM's counter and to the usage the client read.
func (f *fixture) throughClient(t *testing.T, ask func(clientCall) clientAnswer, c clientCall) (outcome, string) {
	t.Helper()
	f.requests++
	c.ID = fmt.Sprintf("client-%s-%d", f.name, f.requests)
	before := f.hits(t)
	a := ask(c)
	if a.Error != "" {
		t.Fatalf("%s: %s", c.Call, a.Error)
	}
	o := outcome{decision: f.decision(t, c.ID)}
	f.quiet(t)
	o.hits = f.hits(t) - before
	switch {
	case !o.decision.Reason.Hint():
		t.Errorf("%s: no hint, reason %s", c.Call, o.decision.Reason)
	case o.decision.Predicted != o.hits:
		t.Errorf("%s: predicted %d cached tokens, vLLM's counter rose by %d", c.Call, o.decision.Predicted, o.hits)
	case a.Cached != nil && *a.Cached != o.hits:
		t.Errorf("%s: the client read %d cached tokens, vLLM's counter rose by %d", c.Call, *a.Cached, o.hits)
	}
	return o, a.Text
}
