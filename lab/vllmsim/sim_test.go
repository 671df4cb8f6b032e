package vllmsim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fast takes no time for computing.
func fast(o Options) Options {
	o.PrefillRate, o.DecodeRate = -1, -1
	return o
}

// startSim runs a replica until the test ends.
func startSim(t *testing.T, o Options) *Sim {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	testenv.Run(t, s.Run)
	return s
}

// call posts (or, without a body, gets) and returns status and body.
func call(t *testing.T, s *Sim, path, body string, headers ...string) (int, []byte) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// want posts and decodes a 200.
func want[T any](t *testing.T, s *Sim, path, body string, headers ...string) (v T) {
	t.Helper()
	status, b := call(t, s, path, body, headers...)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, status, b)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v: %s", path, err, b)
	}
	return v
}

const system = "You hold a long conversation about caches, prefixes and the order in which blocks are evicted. "

var long = strings.Repeat(system, 4)

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

// routeCases is one conversation in each route's form, with the place of the cached
// tokens in its answer.
var routeCases = []struct {
	path, body string
	cached     func(usage map[string]any) any
	prompt     func(usage map[string]any) float64
}{
	{
		"/v1/chat/completions", `"max_tokens":4,"messages":[{"role":"system","content":` + quoted(long) + `},{"role":"user","content":"Go on."}]`,
		func(u map[string]any) any { return dig(u, "prompt_tokens_details", "cached_tokens") },
		func(u map[string]any) float64 { return u["prompt_tokens"].(float64) },
	},
	{
		"/v1/completions", `"max_tokens":4,"prompt":` + quoted(long),
		func(u map[string]any) any { return dig(u, "prompt_tokens_details", "cached_tokens") },
		func(u map[string]any) float64 { return u["prompt_tokens"].(float64) },
	},
	{
		"/v1/responses", `"max_output_tokens":4,"instructions":` + quoted(long) + `,"input":"Go on."`,
		func(u map[string]any) any { return dig(u, "input_tokens_details", "cached_tokens") },
		func(u map[string]any) float64 { return u["input_tokens"].(float64) },
	},
	{
		"/v1/messages", `"max_tokens":4,"system":[{"type":"text","text":` + quoted(long) + `}],"messages":[{"role":"user","content":"Go on."}]`,
		func(u map[string]any) any { return u["cache_read_input_tokens"] },
		func(u map[string]any) float64 {
			sum := 0.0
			for _, k := range []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"} {
				if v, ok := u[k].(float64); ok {
					sum += v
				}
			}
			return sum
		},
	},
}

func dig(m map[string]any, keys ...string) (v any) {
	v = m
	for _, k := range keys {
		next, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = next[k]
	}
	return v
}

// TestRoutes sends each route's request twice and wants the second one's usage to count
// the first one's blocks: whole blocks, and never the last token. /render returns the ids
// that were served, and a stream reports the same usage.
func TestRoutes(t *testing.T) {
	for _, c := range routeCases {
		t.Run(strings.TrimPrefix(c.path, "/v1/"), func(t *testing.T) {
			s := startSim(t, fast(Options{Model: "m"}))
			body := `{"model":"m",` + c.body + `}`
			rendered := renderedTokens(t, s, c.path, body)
			wantCached := float64((len(rendered) - 1) / 16 * 16)
			for i, cached := range []float64{0, wantCached} {
				u := want[map[string]any](t, s, c.path, body)["usage"].(map[string]any)
				if got := c.prompt(u); got != float64(len(rendered)) {
					t.Errorf("request %d: %v prompt tokens, /render has %d", i, got, len(rendered))
				}
				if got := c.cached(u); got != cached {
					t.Errorf("request %d: %v tokens from the cache, want %v", i, got, cached)
				}
			}
			_, stream := call(t, s, c.path, `{"model":"m","stream":true,"stream_options":{"include_usage":true},`+c.body+`}`)
			if got := streamUsage(t, stream); c.cached(got) != wantCached {
				t.Errorf("stream: usage %v, want %v cached", got, wantCached)
			}
		})
	}
}

// renderedTokens are the token ids /render gives for body.
func renderedTokens(t *testing.T, s *Sim, path, body string) []uint32 {
	t.Helper()
	type rendered struct {
		Tokens []uint32 `json:"token_ids"`
	}
	if path == "/v1/completions" {
		return want[[]rendered](t, s, path+"/render", body)[0].Tokens
	}
	return want[rendered](t, s, path+"/render", body).Tokens
}

// streamUsage is the last usage object of an event stream, at any position.
func streamUsage(t *testing.T, stream []byte) (usage map[string]any) {
	t.Helper()
	sc := bufio.NewScanner(bytes.NewReader(stream))
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		for _, u := range []any{m["usage"], dig(m, "response", "usage")} {
			if u, ok := u.(map[string]any); ok {
				usage = u
			}
		}
	}
	if usage == nil {
		t.Fatalf("no usage in %s", stream)
	}
	return usage
}

// TestConversation wants a second turn to find the first one's prompt and
// answer cached, block by block.
func TestConversation(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m"}))
	type reply struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	msgs := `{"role":"system","content":` + quoted(long) + `},{"role":"user","content":"What next?"}`
	one := want[reply](t, s, "/v1/chat/completions", `{"model":"m","max_tokens":100,"messages":[`+msgs+`]}`)
	two := want[reply](t, s, "/v1/chat/completions", `{"model":"m","max_tokens":1,"messages":[`+msgs+
		`,{"role":"assistant","content":`+quoted(one.Choices[0].Message.Content)+`},{"role":"user","content":"And then?"}]}`)
	// The answer's last token was never computed.
	if want := (one.Usage.Prompt + 99) / 16 * 16; two.Usage.Details.Cached != want {
		t.Errorf("%d tokens cached for the second turn, want %d", two.Usage.Details.Cached, want)
	}
}

// TestUsageOfBatch: usage reports the last prompt's cached tokens only, the
// metric counts all.
func TestUsageOfBatch(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m"}))
	list := func(from int) string {
		ids := make([]int, 40)
		for i := range ids {
			ids[i] = from + i
		}
		b, _ := json.Marshal(ids)
		return string(b)
	}
	body := `{"model":"m","max_tokens":1,"prompt":[` + list(1) + `,` + list(1000) + `]}`
	call(t, s, "/v1/completions", body)
	u := want[map[string]any](t, s, "/v1/completions", body)["usage"].(map[string]any)
	if got := dig(u, "prompt_tokens_details", "cached_tokens"); got != 32.0 {
		t.Errorf("usage says %v cached, want the last prompt's 32", got)
	}
	if c := s.Cache(0); c.Hits != 64 || c.Queries != 160 {
		t.Errorf("counted %+v, want 64 hits of 160", c)
	}
	u = want[map[string]any](t, s, "/v1/completions", `{"model":"m","max_tokens":1,"echo":true,"logprobs":1,"prompt":`+list(1)+`}`)["usage"].(map[string]any)
	if got := dig(u, "prompt_tokens_details", "cached_tokens"); got != 0.0 {
		t.Errorf("echo with logprobs: %v cached, it reads no cache", got)
	}
}

// TestScopes: another adapter, salt or image shares no block with the base
// model, an alias shares all.
func TestScopes(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m", Aliases: []string{"also-m"}, LoRAs: []LoRA{{Name: "sql", Path: "/sql"}}}))
	msg := func(extra string) string {
		return `{"max_tokens":1,` + extra + `"messages":[{"role":"user","content":` + quoted(long) + `}]}`
	}
	picture := func(url string) string {
		return `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}},{"type":"text","text":` + quoted(long) + `}]}]}`
	}
	call(t, s, "/v1/chat/completions", msg(`"model":"m",`))
	call(t, s, "/v1/chat/completions", picture("data:one"))
	for _, c := range []struct {
		name, body string
		warm       bool
	}{
		{"same", msg(`"model":"m",`), true},
		{"alias", msg(`"model":"also-m",`), true},
		{"adapter", msg(`"model":"sql",`), false},
		{"salt", msg(`"model":"m","cache_salt":"a",`), false},
		{"same image", picture("data:one"), true},
		{"other image", picture("data:two"), false},
	} {
		u := want[map[string]any](t, s, "/v1/chat/completions", c.body)["usage"].(map[string]any)
		if got := dig(u, "prompt_tokens_details", "cached_tokens").(float64); got > 16 != c.warm {
			t.Errorf("%s: %v cached", c.name, got)
		}
	}
	f := want[map[string]any](t, s, "/v1/chat/completions/render", picture("data:one"))["features"]
	if n := dig(f.(map[string]any), "mm_placeholders", "image").([]any); len(n) != 1 || dig(n[0].(map[string]any), "length") != 64.0 {
		t.Errorf("features %v", f)
	}
}

// TestDataParallel: each rank has its own cache, the header chooses.
func TestDataParallel(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m", DataParallel: 2}))
	body := `{"model":"m","max_tokens":1,"prompt":` + quoted(long) + `}`
	for _, rank := range []string{"1", "1", "0"} {
		call(t, s, "/v1/completions", body, rankHeader, rank)
	}
	if a, b := s.Cache(0), s.Cache(1); a.Hits != 0 || a.Queries == 0 || b.Hits == 0 {
		t.Errorf("rank 0 %+v, rank 1 %+v", a, b)
	}
	if status, _ := call(t, s, "/v1/completions", body, rankHeader, "2"); status != http.StatusBadRequest {
		t.Errorf("rank 2 of 2: status %d", status)
	}
	_, page := call(t, s, "/metrics", "")
	for _, line := range []string{
		`vllm:prefix_cache_hits_total{engine="0",model_name="m"} 0.0`,
		`vllm:time_to_first_token_seconds_count{engine="1",model_name="m"} 2.0`,
		`vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="1",num_gpu_blocks="2048",prefix_caching_hash_algo="sha256"} 1.0`,
	} {
		if !strings.Contains(string(page), "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, page)
		}
	}
}

func TestErrors(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m", Blocks: 32, MaxModelLen: 200}))
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/chat/completions", `{"model":"other","messages":[{"role":"user","content":"x"}]}`, 404},
		{"/v1/chat/completions", `{"model":"m","messages":[]}`, 400},
		{"/v1/chat/completions", `{"model":"m","messages":"x"}`, 400},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":7}]}`, 400},
		{"/v1/completions", `{"model":"m","prompt":[]}`, 400},
		{"/v1/completions", `{"model":"m","prompt":{"a":1}}`, 400},
		{"/v1/completions", `{"model":"m","prompt":"x","max_tokens":0}`, 400},
		{"/v1/completions", `{"model":"m","prompt":"x","max_tokens":200}`, 400},
		{"/v1/completions", `{"model":"m","prompt":"x","n":0}`, 400},
		{"/v1/completions", `{"model":"m","prompt":"x","cache_salt":""}`, 400},
		{"/v1/completions", `{"model":"m","prompt":` + quoted(strings.Repeat("word ", 300)) + `}`, 400},
		{"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, 400},
		{"/v1/responses", `{"model":"m","input":[]}`, 400},
		{"/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_1"}`, 404},
		{"/v1/completions", `not json`, 400},
	} {
		status, body := call(t, s, c.path, c.body)
		var e struct {
			Error struct {
				Message string
				Code    int
			}
		}
		if err := json.Unmarshal(body, &e); status != c.status || err != nil || e.Error.Message == "" || e.Error.Code != c.status {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		}
	}
}

// TestVersions: routes that 0.21 lacks answer 404, and flags turn routes off as in vLLM.
func TestVersions(t *testing.T) {
	old := startSim(t, fast(Options{Version: V021}))
	for path, body := range map[string]string{"/kv_event_sources": "", "/v1/messages/render": "{}", "/v1/responses/render": "{}"} {
		if status, _ := call(t, old, path, body); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("0.21 answers %s with %d", path, status)
		}
	}
	plain := startSim(t, fast(Options{NoScaleOut: true, NoDevMode: true, NoPromptDetails: true}))
	if status, _ := call(t, plain, "/v1/completions/render", `{"prompt":"x"}`); status != http.StatusForbidden {
		t.Errorf("/render without scale-out: %d", status)
	}
	if status, _ := call(t, plain, "/reset_prefix_cache", `{}`); status != http.StatusNotFound {
		t.Errorf("/reset_prefix_cache without dev mode: %d", status)
	}
	u := want[map[string]any](t, plain, "/v1/completions", `{"prompt":"x"}`)["usage"].(map[string]any)
	if u["prompt_tokens_details"] != nil {
		t.Errorf("usage without details: %v", u)
	}
}

// TestClientLeaves: a client that goes frees its sequence.
func TestClientLeaves(t *testing.T) {
	s := startSim(t, Options{Model: "m", DecodeRate: 1000, MaxModelLen: 32000})
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+"/v1/completions",
		strings.NewReader(`{"model":"m","prompt":"x","max_tokens":30000,"stream":true}`))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	const aborted = `vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1.0`
	for deadline := time.Now().Add(time.Minute); ; {
		_, page := call(t, s, "/metrics", "")
		if strings.Contains(string(page), aborted) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still not aborted long after the client left:\n%s", page)
		}
	}
	e := s.ranks[0].engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pool.free != len(e.pool.all) {
		t.Errorf("%d of %d blocks free", e.pool.free, len(e.pool.all))
	}
}

func TestFaults(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m", Faults: Faults{ErrorEvery: 2}}))
	codes := map[int]int{}
	for range 4 {
		status, _ := call(t, s, "/v1/completions", `{"model":"m","prompt":"x"}`)
		codes[status]++
	}
	if codes[200] != 2 || codes[500] != 2 {
		t.Errorf("answers %v, want every second one to fail", codes)
	}
	s.SetFaults(Faults{Stall: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/health", nil)
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
		t.Error("a stalled replica answered")
	}
	s.SetFaults(Faults{})
	if status, _ := call(t, s, "/health", ""); status != http.StatusOK {
		t.Errorf("health %d after the stall", status)
	}
}

func TestModels(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m", Aliases: []string{"a"}, LoRAs: []LoRA{{Name: "l", Path: "/l"}}}))
	got := want[struct {
		Data []struct {
			ID     string
			Root   string
			Parent *string
			Max    *int `json:"max_model_len"`
		}
	}](t, s, "/v1/models", "")
	var lines []string
	for _, d := range got.Data {
		line := d.ID + " " + d.Root
		if d.Parent != nil {
			line += " of " + *d.Parent
		}
		if d.Max != nil {
			line += fmt.Sprint(" ", *d.Max)
		}
		lines = append(lines, line)
	}
	if s := strings.Join(lines, "; "); s != "m /models/m 32752; a /models/m 32752; l /l of m" {
		t.Error(s)
	}
	_, page := call(t, s, "/metrics", "")
	if !strings.Contains(string(page), `vllm:lora_requests_info{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""}`) {
		t.Errorf("no adapters in\n%s", page)
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"BlockSize is -1":      {BlockSize: -1},
		"Blocks is 1":          {Blocks: 1},
		"MaxModelLen is 1000":  {Blocks: 10, MaxModelLen: 1000},
		`Version is "0.1"`:     {Version: "0.1"},
		"HashAlgorithm is":     {HashAlgorithm: "md5"},
		"given twice":          {Model: "a", Aliases: []string{"a"}},
		"Listen is":            {Listen: "nowhere"},
		"above 65535":          {Events: "127.0.0.1:65535", DataParallel: 2},
		"nothing to replay":    {Replay: "127.0.0.1:0"},
		"must not be negative": {Faults: Faults{DropEvery: -1}},
	} {
		if s, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
			if s != nil {
				_ = s.Close()
			}
		}
	}
	if pythonFloat(1e21) != "1e+21" || pythonFloat(math.Pi) == "" || pythonFloat(3) != "3.0" {
		t.Error("pythonFloat")
	}
}
