package filter

import (
	"slices"
	"strings"
	"testing"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/sglang"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// TestAdaptersOfSGLang: a request may name an adapter in its model or beside it. vLLM reads the
// model alone. A request with an adapter that is not listed goes to its model's replicas.
func TestAdaptersOfSGLang(t *testing.T) {
	sql := fleet.Model{ID: "m:sql", Base: "m", LoRA: prefixhash.LoRA{Name: "sql", Path: "/sql", Set: true}}
	with := func(s *sglang.Server) *bench {
		r := replica(1)
		r.SGLang, r.Models = s, append(r.Models, sql)
		return newBench(t, fakeTokens{n: 100}, r)
	}
	for _, tt := range []struct {
		server            *sglang.Server
		fields, of, asked string
	}{
		{&sglang.Server{}, `"model":"m"`, "m", ""},
		{&sglang.Server{}, `"model":"m:sql"`, "m:sql", ""},
		{&sglang.Server{}, `"model":"m","lora_path":"sql"`, "m:sql", ""},
		{&sglang.Server{}, `"lora_path":"sql"`, "m:sql", ""},
		{&sglang.Server{}, `"model":"m:sql","lora_path":"other"`, "m:sql", ""},
		{&sglang.Server{}, `"model":"m","lora_path":null`, "m", ""},
		{&sglang.Server{}, `"model":"m","lora_path":""`, "m", ""},
		{&sglang.Server{}, `"model":"m","lora_path":"other"`, "m", "m:other"},
		{&sglang.Server{}, `"model":"m","lora_path":["sql","other"]`, "m", `m:["sql","other"]`},
		{nil, `"model":"m","lora_path":"sql"`, "m", ""},
	} {
		b := with(tt.server)
		d := b.route(&Query{Route: openai.Completions, Body: []byte(`{"prompt":"x",` + tt.fields + `}`)})
		if d.Model != tt.of || b.last().Asked != tt.asked || (d.Reason == decision.ReasonUnknownModel) != (tt.asked != "") {
			t.Errorf("%s: a request for %q (%s), asked %q, want %q and %q", tt.fields, d.Model, d.Reason, b.last().Asked, tt.of, tt.asked)
		}
	}
}

// TestInputIDsOfSGLang: the prompt of a chat with input_ids is these, to an SGLang alone.
func TestInputIDsOfSGLang(t *testing.T) {
	for _, server := range []*sglang.Server{nil, {}} {
		r := replica(1)
		r.SGLang = server
		b := newBench(t, &tokens.Chooser{}, r)
		b.holds(r.Addr, 0, 2)
		d := b.route(&Query{Route: openai.Chat, Body: []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"input_ids":[` + numbers(2*blockSize+1) + `]}`)})
		if want := map[bool]int{true: 2 * blockSize}[server != nil]; d.Predicted != want {
			t.Errorf("SGLang %v: %d tokens predicted (%s), want %d", server != nil, d.Predicted, d.Reason, want)
		}
	}
}

// TestSessionsOfSGLang: an SGLang puts the prompts of a session before that of a request with
// session_params, so that the router knows none.
func TestSessionsOfSGLang(t *testing.T) {
	for _, server := range []*sglang.Server{nil, {}} {
		for params, known := range map[string]bool{`null`: true, `{"id":"s"}`: server == nil} {
			r := replica(1)
			r.SGLang = server
			b := newBench(t, &tokens.Chooser{}, r)
			b.holds(r.Addr, 0, 2)
			d := b.route(&Query{Route: openai.Completions, Body: []byte(`{"model":"m","prompt":[` + numbers(2*blockSize+1) + `],"session_params":` + params + `}`)})
			if (d.Predicted > 0) != known || (d.Reason == decision.ReasonNoTokens) == known {
				t.Errorf("SGLang %v, %s: %s, %d tokens predicted", server != nil, params, d.Reason, d.Predicted)
			}
		}
	}
}

// numbers is a list of n token ids.
func numbers(n int) string { return strings.Join(slices.Repeat([]string{"7"}, n), ",") }
