package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// llamaServers starts n of llama.cpp's own servers with a tiny model of random weights, and
// returns their addresses.
func llamaServers(t *testing.T, n int) []string {
	t.Helper()
	install := exec.Command(filepath.Join(checkout.Root(), "scripts", "fetch-llamacpp.sh"))
	install.Stderr = os.Stderr
	out := must.Get(install.Output())(t)
	python, dir := strings.TrimSpace(string(out)), t.TempDir()
	model := filepath.Join(dir, "tiny.gguf")
	if out, err := exec.Command(python, "testdata/llamacpp/model.py", model).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addrs := testenv.Addresses(t, n)
	for i, addr := range addrs {
		p := must.Get(testenv.Start(dir, fmt.Sprint("llama", i), nil, python, "testdata/llamacpp/serve.py", model, addr[strings.LastIndexByte(addr, ':')+1:]))(t)
		p.StopAfter(t)
		if err := p.WaitHTTP(ctx, "http://"+addr+"/health"); err != nil {
			t.Fatalf("%v\n%s", err, p.Tail())
		}
	}
	return addrs
}

// llamaTurn sends a chat's next turn to a server and appends the turn and its answer. It
// returns the prompt's tokens, and those that the server took from its cache, by its count.
func llamaTurn(t *testing.T, url string, chat *[]message, content string) (prompt, cached int) {
	t.Helper()
	*chat = append(*chat, message{"user", content})
	var a struct {
		Choices []struct{ Message message }
		Usage   struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	testenv.Post(t, url+"/v1/chat/completions", map[string]any{"model": "tiny", "messages": *chat, "max_tokens": 4}).Into(t, &a)
	if len(a.Choices) != 1 {
		t.Fatalf("%d answers", len(a.Choices))
	}
	*chat = append(*chat, message{"assistant", a.Choices[0].Message.Content})
	return a.Usage.Prompt, a.Usage.Details.Cached
}

// llamaChats has chats of several turns, in turns, and returns the share of their prompts'
// tokens that came from caches. to returns the server of a request, by its number.
func llamaChats(t *testing.T, name string, to func(request int) string) float64 {
	t.Helper()
	const chats, turns = 5, 6
	all, prompts, hits := make([][]message, chats), 0, 0
	for turn := range turns {
		for c := range chats {
			prompt, cached := llamaTurn(t, to(turn*chats+c), &all[c], strings.Repeat(fmt.Sprintf("%s %d, turn %d. ", name, c, turn), 20))
			prompts, hits = prompts+prompt, hits+cached
		}
	}
	return float64(hits) / float64(prompts)
}

// TestAnyOpenAIServer: with the two lines of the example and nothing else, chats go back to the
// llama.cpp server that has them, by its text alone, and no request fails. The servers' own
// counts of cached tokens are higher than when they are used in turns.
func TestAnyOpenAIServer(t *testing.T) {
	t.Parallel()
	addrs := llamaServers(t, 3)
	example := must.Get(os.ReadFile("../../examples/any-server/warmroute.yaml"))(t)
	if n := bytes.Count(example, []byte("\n")) - bytes.Count(example, []byte("#")); n != 2 {
		t.Fatalf("the example has %d lines besides comments", n)
	}
	next := 0
	config := regexp.MustCompile(`10\.0\.0\.\d:8080`).ReplaceAllStringFunc(string(example), func(string) string { next++; return addrs[next-1] })
	st := start(t, setup{others: addrs, whole: config + "  dead_after: 2m\n"}) // the machine may be busy
	st.until("all three are ready", func() bool { return st.metrics()[`warmroute_fleet_replicas{state="ready"}`] == 3 })
	routed := llamaChats(t, "routed", func(int) string { return st.envoy.URL })
	inTurns := llamaChats(t, "in turns", func(request int) string { return "http://" + addrs[request%len(addrs)] })
	t.Logf("cached tokens: %.0f %% routed, %.0f %% in turns", 100*routed, 100*inTurns)
	if routed < 0.65 || routed < inTurns+0.2 {
		t.Errorf("%.2f of the tokens came from caches, %.2f in turns", routed, inTurns)
	}
	m := st.metrics()
	if m[`warmroute_matches_total{source="text"}`] != 25 { // every turn but the first of five chats
		t.Errorf("matches of texts: %v; decisions: %v", m[`warmroute_matches_total{source="text"}`], testenv.Reasons(t, st.admin))
	}
	if log := st.extproc.Tail(); strings.Count(log, "replica runs neither vLLM nor SGLang") != 3 || strings.Contains(log, "level=WARN") {
		t.Errorf("the log:\n%s", log)
	}
}
