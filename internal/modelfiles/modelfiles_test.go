package modelfiles

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// hub is a fake of the hub: small files by git's hash, the tokenizer by its
// SHA-256 behind a redirect to another server, as large files are.
type hub struct {
	mu     sync.Mutex
	files  map[string]string
	large  *httptest.Server
	cutAt  int    // break the first large download off after so many bytes
	stall  func() // once: called in the middle of a large download, which then stands still
	ranges []string
	asked  int
	auth   []string
	wrong  bool // serve bytes that differ from the ETag
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	h.auth = append(h.auth, r.Header.Get("Authorization"))
	name := filepath.Base(r.URL.Path)
	text, ok := h.files[name]
	if !ok || !strings.HasPrefix(r.URL.Path, "/own/model/resolve/") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if name == "tokenizer.json" {
		w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))))
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(text)))
		http.Redirect(w, r, h.large.URL+"/"+name, http.StatusFound)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(text), text)))))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

func (h *hub) serveLarge(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ranges = append(h.ranges, r.Header.Get("Range"))
	h.auth = append(h.auth, r.Header.Get("Authorization"))
	text := h.files["tokenizer.json"]
	if h.wrong {
		text = strings.ToUpper(text)
	}
	if h.cutAt > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		fmt.Fprint(w, text[:h.cutAt])
		h.cutAt = 0
		panic(http.ErrAbortHandler)
	}
	if stall := h.stall; stall != nil {
		h.stall = nil
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		fmt.Fprint(w, text[:30_000])
		_ = http.NewResponseController(w).Flush()
		stall()
		<-r.Context().Done()
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

func newHub(t *testing.T) (*hub, *Hub, string) {
	t.Helper()
	h := &hub{files: map[string]string{"tokenizer.json": strings.Repeat(`{"version": "1.0"}`, 5000), "tokenizer_config.json": `{"eos_token": "x"}`, "config.json": "{}"}}
	h.large = httptest.NewServer(http.HandlerFunc(h.serveLarge))
	front := httptest.NewServer(h)
	t.Cleanup(h.large.Close)
	t.Cleanup(front.Close)
	home := t.TempDir()
	return h, open(t, map[string]string{"HF_ENDPOINT": strings.Replace(front.URL, "127.0.0.1", "localhost", 1) + "/", "HF_HOME": home, "HF_TOKEN": "secret"}), home
}

func open(t *testing.T, env map[string]string) *Hub {
	t.Helper()
	return must.Get(New(func(k string) string { return env[k] }))(t)
}

func TestFetch(t *testing.T) {
	fake, h, home := newHub(t)
	if _, err := h.Find("own/model"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("before: %v", err)
	}
	dir := must.Get(h.Fetch(context.Background(), "own/model"))(t)
	if want := filepath.Join(home, "hub", "models--own--model", "snapshots", commit); dir != want {
		t.Errorf("folder %s, want %s", dir, want)
	}
	for name, text := range fake.files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if link, err := os.Readlink(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(link, "../../blobs/") {
			t.Errorf("%s is no link into the blobs: %q, %v", name, link, err)
		}
	}
	for _, ref := range []string{"own/model", "own/model@main", "own/model@" + commit} {
		if got, err := h.Find(ref); err != nil || got != dir {
			t.Errorf("Find(%s) = %s, %v", ref, got, err)
		}
	}
	n := len(fake.ranges)
	if _, err := h.Fetch(context.Background(), "own/model"); err != nil || len(fake.ranges) != n {
		t.Errorf("the second time: %v, %d downloads more", err, len(fake.ranges)-n)
	}
	toHub, toOther := 0, 0
	for _, a := range fake.auth {
		if a == "Bearer secret" {
			toHub++
		} else if a == "" {
			toOther++
		}
	}
	if toHub != fake.asked || toOther != len(fake.ranges) {
		t.Errorf("the token went to the hub %d times of %d and elsewhere %d times", toHub, fake.asked, len(fake.ranges)-toOther)
	}
	offline := open(t, map[string]string{"HF_HOME": home, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:1"})
	if got, err := offline.Fetch(context.Background(), "own/model"); err != nil || got != dir {
		t.Errorf("offline: %s, %v", got, err)
	}
	if _, err := offline.Fetch(context.Background(), "own/other"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("offline, another model: %v", err)
	}
}

func TestDownloadGoesOnWhereItBroke(t *testing.T) {
	fake, h, _ := newHub(t)
	fake.cutAt = 30_000
	dir := must.Get(h.Fetch(context.Background(), "own/model"))(t)
	if got, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || string(got) != fake.files["tokenizer.json"] {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if len(fake.ranges) != 2 || fake.ranges[0] != "" || !strings.HasPrefix(fake.ranges[1], "bytes=") || fake.ranges[1] == "bytes=0-" {
		t.Errorf("downloads asked for %q, want the whole and then the rest", fake.ranges)
	}
}

// A hub that stands still is left when the attempt's time is up; the next attempt
// continues the downloaded part.
func TestSlowHub(t *testing.T) {
	fake, h, home := newHub(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	up := errors.New("the attempt's time is up")
	arrived := func() int64 {
		files, _ := filepath.Glob(filepath.Join(home, "hub", "*", "blobs", "*.incomplete"))
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				return info.Size()
			}
		}
		return 0
	}
	fake.stall = func() { cancel(up) }
	if _, err := h.Fetch(ctx, "own/model"); !errors.Is(err, context.Canceled) && !errors.Is(err, up) {
		t.Fatalf("error %v", err)
	}
	if _, err := h.Find("own/model"); !errors.Is(err, ErrNotFound) {
		t.Errorf("half a model is found: %v", err)
	}
	before := arrived()
	dir := must.Get(h.Fetch(context.Background(), "own/model"))(t)
	if got, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || string(got) != fake.files["tokenizer.json"] {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	want := ""
	if before > 0 { // it depends on who was faster how much had come
		want = fmt.Sprintf("bytes=%d-", before)
	}
	if last := fake.ranges[len(fake.ranges)-1]; last != want {
		t.Errorf("of %d bytes that had come the next attempt asks for %q", before, last)
	}
}

func TestWrongContentIsRefused(t *testing.T) {
	fake, h, home := newHub(t)
	fake.wrong = true
	if _, err := h.Fetch(context.Background(), "own/model"); err == nil || !strings.Contains(err.Error(), "hash") {
		t.Fatalf("error %v", err)
	}
	if _, err := h.Find("own/model"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the wrong file is found: %v", err)
	}
	fake.mu.Lock()
	fake.wrong = false
	fake.mu.Unlock()
	if _, err := h.Fetch(context.Background(), "own/model"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(home, "hub", "*", "blobs", "*.incomplete"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestErrorsSayWhatIsMissing(t *testing.T) {
	fake, h, _ := newHub(t)
	for ref, says := range map[string]string{
		"own/none": "does not have it", "../etc": "neither a folder nor", "a/b/c": "neither a folder nor", "own/model@../x": "revision",
	} {
		if _, err := h.Fetch(context.Background(), ref); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	dir := t.TempDir()
	if _, err := h.Find(dir); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("an empty folder: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), nil, 0o644))
	if got, err := h.Fetch(context.Background(), dir); err != nil || got != dir {
		t.Errorf("a folder: %s, %v", got, err)
	}
	if _, err := New(func(string) string { return "" }); err == nil {
		t.Error("no home, no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.Fetch(ctx, "own/model"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	_ = fake
}

func TestCachePlace(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"/c":                     {"HF_HUB_CACHE": "/c", "HF_HOME": "/h"},
		"/h/hub":                 {"HF_HOME": "/h"},
		"/x/huggingface/hub":     {"XDG_CACHE_HOME": "/x", "HOME": "/me"},
		"/me/.cache/huggingface": {"HOME": "/me"},
	} {
		if h := open(t, env); !strings.HasPrefix(h.cache, want) {
			t.Errorf("%v: cache %s, want %s", env, h.cache, want)
		}
	}
}
