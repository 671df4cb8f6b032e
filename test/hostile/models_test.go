package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
)

// listing is a replica's list of models, which a test changes as a hostile replica could.
type listing struct {
	more atomic.Pointer[map[string]string]
}

// set lists further models from now on: the folders that they were loaded from, by their
// names.
func (l *listing) set(models map[string]string) { l.more.Store(&models) }

// front answers /v1/models with the replica's own list and the further models.
func (l *listing) front(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		more := l.more.Load()
		if r.URL.Path != "/v1/models" || more == nil {
			api.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		var list struct {
			Object string           `json:"object"`
			Data   []map[string]any `json:"data"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for name, root := range *more {
			list.Data = append(list.Data, map[string]any{"id": name, "object": "model", "owned_by": "vllm", "root": root, "max_model_len": 4096})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	})
}

// found is the router's knowledge of a model's files.
type found struct {
	Model, Folder, Error string
}

// tokenizers returns the files that the router has found, or the reason why not, by
// model.
func (s *site) tokenizers() map[string]found {
	s.t.Helper()
	var page struct{ Tokenizers []found }
	if err := json.Unmarshal([]byte(s.page("/debug/explain")), &page); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]found{}
	for _, f := range page.Tokenizers {
		out[f.Model] = f
	}
	return out
}

// modelSite starts one replica of a real model, with a list that the test changes, and
// waits until the model's tokenizer is loaded.
func modelSite(t *testing.T, config string, env ...string) (*site, *listing, string) {
	t.Helper()
	root, err := testenv.TinyModel(t.TempDir(), "qwen3")
	if err != nil {
		t.Fatal(err)
	}
	list := new(listing)
	s := open(t, setup{
		replicas: 1, config: config, env: append(env, "HF_HOME="+t.TempDir()),
		sim: vllmsim.Options{Root: root, PrefillRate: -1, DecodeRate: -1, Front: list.front},
	})
	s.await("the model's tokenizer", func() bool { return s.tokenizers()["sim"].Folder != "" })
	return s, list, root
}

// A replica that lists one folder under 200 names and roots has one tokenizer loaded, and
// the router needs at most half as much memory again.
func TestManyNamesOfOneModel(t *testing.T) {
	s, list, root := modelSite(t, "")
	const loaded = "warmroute_tokenizers_bytes"
	one, before := s.metrics()[loaded], s.resident()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for i := range 200 {
		names[fmt.Sprintf("name-%d", i)] = []string{root, link}[i%2] + strings.Repeat("/.", i/2+1)
	}
	list.set(names)
	s.await("200 names", func() bool {
		n := 0
		for _, f := range s.tokenizers() {
			if f.Folder != "" {
				n++
			}
		}
		return n == 201
	})
	if got := s.metrics()[loaded]; one == 0 || got != one {
		t.Errorf("tokenizers of %v bytes are loaded for one model with one name, of %v with 201", one, got)
	}
	after := s.resident()
	t.Logf("memory: %d MiB with one name, %d MiB with 201", before>>20, after>>20)
	if after > before+before/2 {
		t.Errorf("memory: %d MiB with one name, %d MiB with 201", before>>20, after>>20)
	}
	s.hinted()
}

// A hub whose files do not end, with a replica that lists 50 of its models: the router
// fetches as many bytes as the limit allows, leaves nothing on the disk, asks no more and
// writes one line, or two where two downloads meet the limit at once.
func TestEndlessDownload(t *testing.T) {
	const limit = 8 << 20
	var heads, gets atomic.Int64
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", strings.Repeat("ab", 20))
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, r.URL.Path))
		if r.Method == http.MethodHead {
			heads.Add(1)
			return
		}
		gets.Add(1)
		for piece := make([]byte, 1<<16); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer hub.Close()
	home := t.TempDir()
	s, list, _ := modelSite(t, "tokens: {download_mib: 8}\n", "HF_ENDPOINT="+hub.URL, "HF_HUB_CACHE="+home)
	names := map[string]string{}
	for i := range 50 {
		names[fmt.Sprintf("name-%d", i)] = fmt.Sprintf("own/model-%d", i)
	}
	list.set(names)
	s.await("an end for every name", func() bool {
		n := 0
		for _, f := range s.tokenizers() {
			if strings.Contains(f.Error, "the limit of downloads is reached") {
				n++
			}
		}
		return n == 50
	})
	m := s.metrics()
	const atOnce = 4
	if bytes := m["warmroute_tokenizer_download_bytes_total"]; bytes < limit || bytes > limit+atOnce<<20 {
		t.Errorf("%v bytes were fetched of at most %d", bytes, limit)
	}
	if heads.Load() > atOnce || gets.Load() > atOnce {
		t.Errorf("the hub was asked for %d sizes and %d files by 50 names", heads.Load(), gets.Load())
	}
	if left, _ := filepath.Glob(filepath.Join(home, "*", "blobs", "*")); len(left) > 0 {
		t.Errorf("left on the disk: %v", left)
	}
	if n := s.logLines("the limit of downloads is reached"); n < 1 || n > atOnce {
		t.Errorf("the log says it in %d lines", n)
	}
	if ready := s.page("/readyz"); !strings.Contains(ready, "tokens.download_mib") {
		t.Errorf("/readyz does not say it: %s", ready)
	}
	s.hinted()
}

// HF_TOKEN goes to the configured hub, and not to the server on another port that the hub
// redirects to.
func TestTokenGoesToTheHubAlone(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", ".cache", "models", "gpt2", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(who string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[who+" "+r.Header.Get("Authorization")]++
	}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("store", r)
		_, _ = w.Write(text)
	}))
	defer store.Close()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("hub", r)
		if filepath.Base(r.URL.Path) != "tokenizer.json" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Repo-Commit", strings.Repeat("ab", 20))
		w.Header().Set("X-Linked-Etag", `"abc"`)
		http.Redirect(w, r, store.URL+"/tokenizer.json", http.StatusFound)
	}))
	defer hub.Close()
	s, list, _ := modelSite(t, "", "HF_ENDPOINT="+hub.URL, "HF_TOKEN=secret")
	list.set(map[string]string{"gated": "own/model"})
	s.await("the model of the hub", func() bool { return s.tokenizers()["gated"].Folder != "" })
	mu.Lock()
	defer mu.Unlock()
	if seen["hub Bearer secret"] == 0 || seen["store "] == 0 || len(seen) != 2 {
		t.Errorf("requests by server and credential: %v", seen)
	}
	if n := s.logLines("secret"); n > 0 {
		t.Errorf("the token is in %d lines of the log", n)
	}
}

// hostileModel copies a model's folder and changes its tokenizer.json and chat template.
func hostileModel(t *testing.T, from, template string, change func(tokenizer map[string]any)) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(from, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tokenizer map[string]any
	if err := json.Unmarshal(raw, &tokenizer); err != nil {
		t.Fatal(err)
	}
	change(tokenizer)
	if raw, err = json.Marshal(tokenizer); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"tokenizer.json": raw, "chat_template.jinja": []byte(template)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Models whose authors wrote a template that loops for ever, or split expressions that
// search for ever, are found beside an ordinary model. That model is found, too, and its
// replica is asked about it; the router costs at most ten times the CPU of finding it, for
// eight of them.
func TestHostileModelsDelayNoOther(t *testing.T) {
	s, list, root := modelSite(t, "")
	loop := "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endfor %}"
	search := func(tokenizer map[string]any) {
		tokenizer["pre_tokenizer"] = map[string]any{"type": "Split", "behavior": "Isolated", "invert": false,
			"pattern": map[string]any{"Regex": strings.Repeat("a*b|", 3000) + "c"}}
	}
	names := map[string]string{}
	for i := range 4 {
		own := fmt.Sprintf("{# %d #}", i) // models of different contents: nothing is shared
		names[fmt.Sprintf("loop-%d", i)] = hostileModel(t, root, own+loop, func(map[string]any) {})
		names[fmt.Sprintf("search-%d", i)] = hostileModel(t, root, own+"{{ messages[0].content }}", search)
	}
	good := hostileModel(t, root, "{{ messages[0].content }} ", func(map[string]any) {})
	before := s.cpu()
	list.set(map[string]string{"good": good})
	s.await("an ordinary model", func() bool { return s.tokenizers()["good"].Folder != "" })
	ordinary := s.cpu() - before
	names["zz-good"] = hostileModel(t, root, "{{ messages[0].content }}  ", func(map[string]any) {})
	before = s.cpu()
	list.set(names)
	s.await("the model beside the hostile ones", func() bool { return s.tokenizers()["zz-good"].Folder != "" })
	s.await("an end for the hostile ones", func() bool {
		all := s.tokenizers()
		for name := range names {
			if f := all[name]; f.Folder == "" && f.Error == "" {
				return false
			}
		}
		return true
	})
	for name, f := range s.tokenizers() {
		t.Log(name, f.Error)
	}
	hostile := s.cpu() - before
	t.Logf("CPU: %v for an ordinary model, %v for eight hostile ones and one ordinary", ordinary, hostile)
	if hostile > 10*9*ordinary {
		t.Errorf("CPU: %v for an ordinary model, %v for eight hostile ones and one ordinary", ordinary, hostile)
	}
	s.hinted()
}
