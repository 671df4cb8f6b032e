package chat

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"warmroute/render/openai"
)

// TestSGLang compares the texts that SGLang's own chat server renders (test/sglang/render.py)
// with ours. What is refused is counted: chats of ordinary forms must not be.
func TestSGLang(t *testing.T) {
	for _, name := range []string{"string", "parts"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("testdata/" + name + "-sglang.json.gz")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			z, err := gzip.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			var capture struct {
				Version string
				Vectors []struct {
					Path, Body, Text string
					Status           int
				}
			}
			if err := json.NewDecoder(z).Decode(&capture); err != nil {
				t.Fatal(err)
			}
			r, err := New(Options{Template: templateFile(t, name+".jinja"), SpecialTokens: qwenTokens, Version: capture.Version, Transformers: "5.19.0"})
			if err != nil {
				t.Fatal(err)
			}
			same, refused := 0, map[Why]int{}
			for i, v := range capture.Vectors {
				req, err := openai.Parse(openai.Chat, []byte(v.Body))
				if err != nil {
					continue
				}
				out, err := r.Render(nil, nil, req, time.Unix(0, 0))
				var not *NotInProcess
				switch {
				case errors.As(err, &not):
					refused[not.Why]++
				case err != nil:
					t.Fatal(err)
				case v.Status != 200: // no request is served
				case string(out.Text) != v.Text:
					t.Errorf("vector %d: %s\nrendered %q\nSGLang   %q", i, v.Body, out.Text, v.Text)
				default:
					same++
				}
			}
			t.Logf("%d texts are SGLang's; refused %v", same, refused)
			if len(capture.Vectors) < 300 || same < 100 {
				t.Errorf("%d of %d texts are equal", same, len(capture.Vectors))
			}
		})
	}
}
