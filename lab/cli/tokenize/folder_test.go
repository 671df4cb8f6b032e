package tokenize

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/render"
	"warmroute/render/testkit/checkout"
)

// qwen answers for vLLM 0.32 as the router does.
func qwen(t *testing.T) Model {
	t.Helper()
	m, err := render.Open(t.Context(), filepath.Join(checkout.Root(), ".cache", "models", "qwen3"), render.Flags{StoreBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Server(t.Context(), "0.32.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return Model{Text: m, Requests: r}
}

// TestTokenizeLines: a line names its route, and each has an answer of its own.
func TestTokenizeLines(t *testing.T) {
	in := `{"path":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"hi"}]}}
{"path":"/v1/embeddings","body":{}}
{"path":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}}
`
	var out bytes.Buffer
	if err := Run(strings.NewReader(in), &out, qwen(t), ""); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != `{"ids":[151644,872,198,6023,151645,198,151644,77091,198]}` ||
		!strings.Contains(lines[1], "/v1/embeddings") || !strings.Contains(lines[2], "multimodal") {
		t.Errorf("%q", lines)
	}
}

// With a route, bodies that are not computed here and bodies that vLLM rejects have
// different errors.
func TestTokenizeARoute(t *testing.T) {
	model := qwen(t)
	for _, c := range []struct{ route, body, want string }{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"ids":[151644,872,198,6023,151645,198,151644,77091,198]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, `{"refused":"multimodal"}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[]}`, `{"error":"tools is an empty array"}`},
		{"/v1/chat/completions", `{"model":"m","model":"m","messages":[]}`, `{"refused":"repeated_field"}`},
		{"/v1/chat/completions", `{"model":"m"}`, `{"error":"request body: no_prompt"}`},
		{"/v1/completions", `{"model":"m","prompt":["hi",""]}`, `{"error":"the prompt is empty or longer than the model's context"}`},
		{"/v1/completions", `{"model":"m","prompt":["hi","Hi"]}`, `{"ids":[[6023],[13048]]}`},
		{"/v1/completions", `{"model":"m","prompt":[5,6]}`, `{"ids":[5,6]}`},
		{"/v1/completions", `{"model":"m","prompt":[5,6],"truncate_prompt_tokens":1}`, `{"refused":"truncation"}`},
		{"/v1/completions", `{"model":"m","prompt":[5,6],"suffix":""}`, `{"error":"vLLM rejects the request"}`},
		{"/v1/completions", `{"model":"m","prompt":[5,6],"suffix":null}`, `{"ids":[5,6]}`},
		{"/v1/completions", `{"model":"m","prompt":[5,6],"add_special_tokens":null}`, `{"error":"vLLM rejects the request"}`},
		{"/v1/completions", `{"model":"m","prompt":[5,6],"prompt_embeds":"x"}`, `{"refused":"multimodal"}`},
		{"/v1/completions", `{"model":"m","prompt":[true,1.0,"7"]}`, `{"refused":"bad_prompt"}`},
		{"/v1/completions", `{"model":"m","prompt":"hi","echo":null,"add_special_tokens":true}`, `{"ids":[6023]}`},
		{"/v1/completions", `{"model":"m","prompt":"hi","add_special_tokens":null}`, `{"error":"vLLM rejects the request"}`},
		{"/v1/completions", `{"model":"m","prompt":""}`, `{"error":"the prompt is empty"}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"add_generation_prompt":null}`, `{"error":"vLLM rejects the request"}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"continue_final_message":null}`, `{"error":"vLLM rejects the request"}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","reasoning":null,"content":["x"]},{"role":"user","content":"hi"}]}`, `{"refused":"unknown_shape"}`},
	} {
		var out bytes.Buffer
		if err := Run(strings.NewReader(c.body), &out, model, c.route); err != nil || out.String() != c.want+"\n" {
			t.Errorf("%s: %v, %s, want %s", c.body, err, out.String(), c.want)
		}
	}
}
