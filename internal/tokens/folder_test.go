package tokens

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warmroute/internal/chat/chattest"
	"warmroute/internal/cli/tokenize"
)

func TestRequestsForTheCommandLine(t *testing.T) {
	m := qwen(t)
	r, err := m.Requests("0.32.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := chattest.Read("../chat/testdata/qwen-0.32.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Vectors[:100] {
		ids, err := r.Tokenize(c.Path, []byte(c.Body))
		if c.Status == 0 && (err != nil || !slices.EqualFunc(ids, c.IDs, slices.Equal)) {
			t.Errorf("%v: %s", err, c.Body)
		}
	}
	in := `{"path":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"hi"}]}}
{"path":"/v1/embeddings","body":{}}
{"path":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}}
`
	var out bytes.Buffer
	if err := tokenize.Run(strings.NewReader(in), &out, tokenize.Model{Text: m.Encoder, Requests: r}, ""); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != `{"ids":[151644,872,198,6023,151645,198,151644,77091,198]}` ||
		!strings.Contains(lines[1], "/v1/embeddings") || !strings.Contains(lines[2], "multimodal") {
		t.Errorf("%q", lines)
	}
}

// With a route, bodies that are not computed here and those that vLLM rejects
// have different errors.
func TestTokenizeARoute(t *testing.T) {
	m, err := LoadFolder(filepath.Join("..", "..", ".cache", "models", "qwen3"), Flags{StoreBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Requests("0.32.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ route, body, want string }{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"ids":[151644,872,198,6023,151645,198,151644,77091,198]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, `{"refused":"multimodal"}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[]}`, `{"error":"tools is an empty array"}`},
		{"/v1/chat/completions", `{"model":"m","model":"m","messages":[]}`, `{"refused":"duplicate_key"}`},
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
		if err := tokenize.Run(strings.NewReader(c.body), &out, tokenize.Model{Text: m.Encoder, Requests: r}, c.route); err != nil || out.String() != c.want+"\n" {
			t.Errorf("%s: %v, %s, want %s", c.body, err, out.String(), c.want)
		}
	}
}

func TestLoadFolderFlags(t *testing.T) {
	dir := filepath.Join("..", "..", ".cache", "models", "qwen3")
	template := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte(`{{ style }}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := LoadFolder(dir, Flags{ChatTemplate: template, DefaultKwargs: json.RawMessage(`{"style":"hi"}`), StoreBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Requests("0.32.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := r.Tokenize("/v1/chat/completions", []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	if err != nil || len(ids) != 1 || !slices.Equal(ids[0], []uint32{6023}) {
		t.Errorf("%v %v", ids, err)
	}
	for _, bad := range []Flags{{DefaultKwargs: json.RawMessage(`[1]`)}, {ChatTemplate: "/does/not/exist"}} {
		if _, err := LoadFolder(dir, bad); err == nil {
			t.Errorf("%+v must be refused", bad)
		}
	}
	if _, err := LoadFolder(t.TempDir(), Flags{}); err == nil {
		t.Error("an empty folder must be refused")
	}
}

func TestModelKind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := modelKind(dir, ""); err != nil || m.Type != "" || m.Coded() != "" {
		t.Errorf("%+v %v", m, err)
	}
	write("config.json", `{"model_type":"gpt_oss"}`)
	if m, _ := modelKind(dir, ""); m.Coded() == "" {
		t.Errorf("%+v", m)
	}
	write("config.json", `{"model_type":"mistral"}`)
	write("tekken.json", `{}`)
	if m, _ := modelKind(dir, ""); m.Coded() != "mistral-common" {
		t.Errorf("%+v", m)
	}
	write("config.json", `{`)
	if _, err := modelKind(dir, ""); err == nil {
		t.Error("a broken config.json must be refused")
	}
}
