//go:build vllm

package vllm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/internal/tokens"
	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/oracle"
)

// coded is a model that vLLM renders in code.
type coded struct {
	name  string
	files string // the tokenizer's folder in .cache/models
	kind  string // model_type and architecture
	flags string
	env   map[string]string
	ours  tokens.Flags
	// mistral is the version of a folder in Mistral's own format, sentencepiece that
	// it has a SentencePiece model and no tekken.json.
	mistral       int
	sentencepiece bool
}

var codedModels = []coded{
	{name: "gpt_oss", files: "gptoss", kind: "gpt_oss GptOssForCausalLM", flags: "--tool-call-parser openai --reasoning-parser openai_gptoss",
		env: map[string]string{"VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS": "0"}},
	{name: "gpt_oss_instructed", files: "gptoss", kind: "gpt_oss GptOssForCausalLM", flags: "--tool-call-parser openai",
		env: map[string]string{"VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS": "1"}, ours: tokens.Flags{SystemInstructions: true}},
	{name: "deepseek_v32", files: "deepseek_v4", kind: "deepseek_v32 DeepseekV32ForCausalLM",
		flags: "--tokenizer-mode deepseek_v32 --tool-call-parser deepseek_v32 --reasoning-parser deepseek_v3"},
	{name: "deepseek_v4", files: "deepseek_v4", kind: "deepseek_v4 DeepseekV4ForCausalLM",
		flags: "--tokenizer-mode deepseek_v4 --tool-call-parser deepseek_v4 --reasoning-parser deepseek_v4"},
	{name: "deepseek_v41", files: "deepseek_v4", kind: "deepseek_v41 DeepseekV41ForCausalLM",
		flags: "--tokenizer-mode deepseek_v41 --tool-call-parser deepseek_v41 --reasoning-parser deepseek_v41"},
	{name: "mistral_spm_v3", mistral: 3, sentencepiece: true},
	{name: "mistral_spm_v7", mistral: 7, sentencepiece: true},
	{name: "mistral_tekken_v3", mistral: 3},
	{name: "mistral_tekken_v11", mistral: 11},
	{name: "mistral_tekken_v13", mistral: 13},
	{name: "mistral_tekken_v15", mistral: 15},
}

// mistralFlags are without a tool parser: that of 0.32 answers 400 to every request
// where mistral-common is of version 1.13. Ids do not depend on it.
const mistralFlags = "--tokenizer-mode mistral --config-format hf"

// sizes are further required fields of a configuration; no weights are loaded.
const sizes = `"hidden_size":64,"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"vocab_size":201088,
"max_position_embeddings":131072,"torch_dtype":"bfloat16","head_dim":16,"num_local_experts":2,"num_experts_per_tok":1,"sliding_window":128,
"q_lora_rank":32,"kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":16,"v_head_dim":16,"n_routed_experts":2,"n_shared_experts":1,
"moe_intermediate_size":64,"first_k_dense_replace":1,"n_group":1,"topk_group":1,"routed_scaling_factor":1.0,"norm_topk_prob":true,
"scoring_func":"sigmoid","topk_method":"noaux_tc","index_topk":64,"index_head_dim":16,"index_n_heads":4,"rope_theta":10000.0,"rms_norm_eps":1e-6`

func (c coded) folder(t *testing.T) string {
	t.Helper()
	if c.mistral > 0 {
		dir := chattest.MistralFolder(t, c.mistral, c.sentencepiece)
		c.writeConfig(t, dir, "mistral MistralForCausalLM")
		return dir
	}
	dir := t.TempDir()
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		must.Do(t, os.Symlink(filepath.Join(checkout.Root(), ".cache", "models", c.files, file), filepath.Join(dir, file)))
	}
	c.writeConfig(t, dir, c.kind)
	return dir
}

func (c coded) writeConfig(t *testing.T, dir, kind string) {
	t.Helper()
	kind, architecture, _ := strings.Cut(kind, " ")
	config := fmt.Sprintf(`{"model_type":%q,"architectures":[%q],%s}`, kind, architecture, sizes)
	must.Do(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644))
}

// question and rendering are the input and output of render.py.
type question struct {
	Model string            `json:"model"`
	Route string            `json:"route"`
	Body  string            `json:"body"`
	Env   map[string]string `json:"env,omitempty"`
}

type rendering struct {
	IDs    [][]uint32
	Status int
	Says   string
}

// wanted are the models of CODED_MODELS (all), and how many requests each gets:
// CODED_REQUESTS.
func wanted(t *testing.T) (models []coded, requests int) {
	t.Helper()
	names := os.Getenv("CODED_MODELS")
	for _, c := range codedModels {
		if names == "" || slices.Contains(strings.Split(names, ","), c.name) {
			models = append(models, c)
		}
	}
	requests = 200
	if n := os.Getenv("CODED_REQUESTS"); n != "" {
		requests = must.Get(strconv.Atoi(n))(t)
	}
	return models, requests
}

// TestCoded compares the chats that are written in process with vLLM's own code, with a
// render server for each model: the router's start-up check confirms the ids, on
// generated requests they are equal, requests that vLLM refuses have no ids here, and at
// least 95 % of the requests that it answers are computed.
func TestCoded(t *testing.T) {
	t.Parallel()
	models, requests := wanted(t)
	var args []string
	folders := map[string]string{}
	for _, c := range models {
		folders[c.name] = c.folder(t)
		args = append(append(args, "--", c.name+"="+folders[c.name], "--max-model-len", "131072"), c.arguments()...)
	}
	p, err := oracle.StartVLLM("0.32.0", []string{"VLLM_SYSTEM_START_DATE=2026-03-05", "TZ=UTC"}, "render.py", args[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var ready struct {
		Ready string
		URLs  map[string]string
	}
	if err := p.Read(&ready); err != nil || ready.Ready == "" {
		t.Fatalf("%+v %v", ready, err)
	}
	seed := uint64(20260305)
	if s := os.Getenv("CODED_SEED"); s != "" {
		seed = must.Get(strconv.ParseUint(s, 10, 64))(t)
	}
	for _, c := range models {
		t.Run(c.name, func(t *testing.T) {
			c.ours.MaxLen, c.ours.StartDate = 131072, "2026-03-05"
			c.confirmed(t, p, folders[c.name], ready.URLs[c.name])
			model := must.Get(render.Open(t.Context(), folders[c.name], c.ours))(t)
			ours := must.Get(model.Server(t.Context(), "0.32.0", time.Now))(t)
			c.compare(t, p, ours, chattest.GenerateCoded(seed, c.requests(requests), "m", "<|start|>", "<|end|>", "<|message|>", "<|channel|>final",
				"<｜User｜>", "<think>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>", "<tool_result>", "<｜System｜>"))
		})
	}
}

// requests is how many requests are made where n is the number for other models:
// more for Mistral, because vLLM checks roles and ids strictly there and answers one
// in nine.
func (c coded) requests(n int) int {
	if c.mistral > 0 {
		return 5 * n
	}
	return n
}

// arguments are the flags of the model's server.
func (c coded) arguments() []string {
	if c.mistral > 0 {
		return strings.Fields(mistralFlags)
	}
	return append(strings.Fields(c.flags), "--enable-auto-tool-choice")
}

// confirmed has the router's start-up check ask the model's render server: it confirms
// the ids written here, and nothing differs.
func (c coded) confirmed(t *testing.T, p *oracle.Process, folder, url string) {
	t.Helper()
	model, err := tokens.LoadFolder(t.Context(), folder, c.ours)
	if err != nil {
		t.Fatal(err)
	}
	// The environment is the process's; a line that is answered has set it.
	must.Do(t, p.Ask(question{c.name, "/v1/completions", `{"model":"m","prompt":"x"}`, c.env}, &rendering{}))
	endpoints := []tokens.Endpoint{{URL: url, Version: "0.32.0", Render: true}}
	remote := tokens.NewRemote(tokens.RemoteOptions{Timeout: time.Minute, // not a test of speed
		Endpoints: func(tokens.Served) []tokens.Endpoint { return endpoints }})
	defer remote.Close()
	outcomes := map[string]int{}
	local := tokens.NewLocal(tokens.LocalOptions{Reference: remote, Endpoints: func(string) []tokens.Endpoint { return endpoints }, Hooks: tokens.Hooks{
		Checked: func(_, outcome string) { outcomes[outcome]++ },
		Demoted: func(_, feature string) { t.Errorf("the start-up check: %s differs", feature) },
	}})
	must.Do(t, local.Load("m", model))
	local.CheckAll(t.Context())
	t.Logf("the start-up check: %v", outcomes)
	if outcomes[tokens.Equal] < 15 {
		t.Errorf("the start-up check confirmed only %d conversations", outcomes[tokens.Equal])
	}
	for route, body := range map[openai.Route]string{
		openai.Chat: `{"model":"m","messages":[{"role":"user","content":"x"}]}`, openai.Completions: `{"model":"m","prompt":"x"}`,
	} {
		req := must.Get(openai.Parse(route, []byte(body)))(t)
		if _, err := local.Tokens(t.Context(), req, tokens.Served{Model: "m"}); err != nil {
			t.Errorf("%v is not computed here after the start-up check: %v", route, err)
		}
	}
}

func (c coded) compare(t *testing.T, p *oracle.Process, ours *render.Server, cases []chattest.Case) {
	answered, equal, refused, objected := 0, 0, map[string]int{}, 0
	for _, q := range cases {
		var theirs rendering
		must.Do(t, p.Ask(question{c.name, q.Route.String(), q.Body, c.env}, &theirs))
		ids, err := ours.Tokenize(q.Route.String(), []byte(q.Body))
		var refusal *render.Refusal
		switch {
		case theirs.Status >= 500: // its own failure: nothing is served
		case theirs.Status != 0 && err == nil:
			c.report(t, fmt.Sprintf("computed what vLLM refuses (%s)", theirs.Says), q, nil, nil)
		case theirs.Status != 0:
			objected++
		case errors.As(err, &refusal):
			answered++
			refused[refusal.Why]++
			c.note(t, "left", q)
		case err != nil:
			c.report(t, fmt.Sprintf("vLLM answers what is refused here (%v)", err), q, nil, nil)
		case slices.EqualFunc(ids, theirs.IDs, slices.Equal):
			answered++
			equal++
		default:
			c.report(t, "ids differ", q, ids, theirs.IDs)
		}
	}
	t.Logf("%d requests: vLLM answers %d, %d of them equal, left to a replica %v; it refuses %d, as here", len(cases), answered, equal, refused, objected)
	if equal*100 < answered*95 {
		t.Errorf("only %d of %d are computed in process", equal, answered)
	}
}

// report describes a difference; CODED_REPORT names a file that gets it as JSON lines,
// with ids.
func (c coded) report(t *testing.T, what string, q chattest.Case, ours, theirs [][]uint32) {
	t.Helper()
	body := q.Body
	if len(body) > 2000 {
		body = body[:2000] + "…"
	}
	t.Errorf("%s: %s %s", what, q.Route, body)
	c.line(t, map[string]any{"kind": what, "route": q.Route.String(), "body": q.Body, "ours": ours, "theirs": theirs})
}

func (c coded) note(t *testing.T, what string, q chattest.Case) {
	c.line(t, map[string]any{"kind": what, "route": q.Route.String(), "body": q.Body})
}

func (c coded) line(t *testing.T, v map[string]any) {
	name := os.Getenv("CODED_REPORT")
	if name == "" {
		return
	}
	f := must.Get(os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	defer f.Close()
	v["model"] = c.name
	must.Do(t, json.NewEncoder(f).Encode(v))
}
