package chat

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
)

// functionToolFields are the fields of FunctionTool in the openai package the
// 0.21 captures were taken with (3.52).
var functionToolFields = []string{"name", "parameters", "strict", "type", "allowed_callers", "async_", "defer_loading", "description", "output_schema"}

// transformers are the versions of that package in the captured servers.
var transformers = map[string]string{"0.21.0": "5.23.0", "0.32.0": "5.19.0"}

func templateFile(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// qwenTokens are the special tokens of the tokenizer the captures used.
var qwenTokens = map[string]string{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}

// TestGolden compares every captured answer of vLLM with ours. The templates are
// this project's own and print all a template is given.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*-0.*.json.gz")
	if err != nil || len(files) < 6 {
		t.Fatalf("captures: %v %v", files, err)
	}
	checked := 0
	for _, file := range files {
		name, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json.gz"), "-")
		if name == "qwen" {
			continue // ids: internal/tokens
		}
		t.Run(name+"-"+version, func(t *testing.T) {
			r, err := New(Options{Template: templateFile(t, name+".jinja"), SpecialTokens: qwenTokens, Version: version,
				ResponsesToolFields: functionToolFields, Transformers: transformers[version]})
			if err != nil {
				t.Fatal(err)
			}
			v, err := chattest.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if v.Version != version || len(v.Vectors) < 400 {
				t.Fatalf("%d vectors of vLLM %s", len(v.Vectors), v.Version)
			}
			checked += compareTexts(t, r, v.Vectors)
		})
	}
	if checked < 1800 {
		t.Errorf("only %d answers compared", checked)
	}
}

// compareTexts requires the same text of both sides, and allows refusals of at most
// one answerable request in twenty. A request that vLLM refuses may be rendered
// here: nothing is served then.
func compareTexts(t *testing.T, r *Renderer, vectors []chattest.Vector) (checked int) {
	t.Helper()
	refused := map[Why]int{}
	answered, wrong := 0, 0
	for _, v := range vectors {
		route, _ := openai.RouteOf("POST", v.Path)
		req, err := openai.Parse(route, []byte(v.Body))
		if err != nil {
			t.Fatalf("%v: %s", err, v.Body)
		}
		out, err := r.Render(nil, nil, req, time.Unix(0, 0))
		if v.Status != 0 {
			continue
		}
		answered++
		var not *NotInProcess
		switch got := strings.ReplaceAll(string(out.Text), "e\u0301", "\u00e9"); {
		case errors.As(err, &not):
			refused[not.Why]++
			if testing.Verbose() {
				t.Logf("%s: %s", not.Why, v.Body)
			}
		case len(v.Texts) != 1:
			t.Fatalf("%d texts", len(v.Texts))
		case got != v.Texts[0]:
			if wrong++; wrong <= 5 {
				at := 0
				for at < len(got) && at < len(v.Texts[0]) && got[at] == v.Texts[0][at] {
					at++
				}
				t.Errorf("%s\n%s\nfrom byte %d on:\ngot  %q\nwant %q", v.Path, v.Body, at, got[max(0, at-40):], v.Texts[0][max(0, at-40):])
			}
		default:
			checked++
		}
	}
	if wrong > 5 {
		t.Errorf("%d of %d differ", wrong, answered)
	}
	n := 0
	for _, c := range refused {
		n += c
	}
	t.Logf("%d answered, %d equal, refused here: %v", answered, checked, refused)
	if n*20 > answered {
		t.Errorf("%d of %d refused here: %v", n, answered, refused)
	}
	return checked
}
