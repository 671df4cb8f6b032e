package modelfiles

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// Only tokenizer, template and configuration files are requested, not a model's
// other files.
func TestOnlyATokenizersFilesAreFetched(t *testing.T) {
	fake, _, _ := newHub(t)
	fake.files["chat_template.jinja"] = "{{ messages }}"
	for _, other := range []string{"model.safetensors", "pytorch_model.bin", "modeling_own.py", "tokenization_own.py", "README.md"} {
		fake.files[other] = "x"
	}
	var asked []string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, filepath.Base(r.URL.Path))
		fake.ServeHTTP(w, r)
	}))
	defer front.Close()
	dir := must.Get(open(t, map[string]string{"HF_ENDPOINT": front.URL, "HF_HOME": t.TempDir()}).Fetch(context.Background(), "own/model"))(t)
	for _, name := range asked {
		if !slices.Contains(slices.Concat(tokenizers, settings), name) {
			t.Errorf("%s was asked for", name)
		}
	}
	entries := must.Get(os.ReadDir(dir))(t)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := "chat_template.jinja config.json tokenizer.json tokenizer_config.json"; strings.Join(got, " ") != want {
		t.Errorf("fetched %v, want %s", got, want)
	}
}

// The download of a file whose reported size is larger than a tokenizer's is not
// begun.
func TestFilesTooLargeAreRefused(t *testing.T) {
	for _, header := range []string{"X-Linked-Size", "Content-Length"} {
		gets := 0
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodHead {
				gets++
			}
			w.Header().Set("X-Repo-Commit", commit)
			w.Header().Set("ETag", `"abc"`)
			w.Header().Set(header, fmt.Sprint(maxTokenizer+1))
		}))
		_, err := open(t, map[string]string{"HF_ENDPOINT": front.URL, "HF_HOME": t.TempDir()}).Fetch(context.Background(), "own/model")
		front.Close()
		if err == nil || !strings.Contains(err.Error(), "more than") || gets != 0 {
			t.Errorf("%s: %v, %d downloads", header, err, gets)
		}
	}
}
