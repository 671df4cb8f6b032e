package tokens

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // git's names of files
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmroute/internal/modelfiles"
	"warmroute/render/testkit/must"
)

const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// standIn is a hub that has the model own/model, GPT-2's tokenizer.
func standIn(t *testing.T) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	dir := filepath.Join("..", "..", ".cache", "models", "gpt2")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
		switch {
		case strings.HasPrefix(r.URL.Path, "/own/gated/"):
			w.WriteHeader(http.StatusUnauthorized)
			return
		case err != nil || !strings.HasPrefix(r.URL.Path, "/own/model/resolve/"):
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Repo-Commit", hubCommit)
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(text), text))))) //nolint:gosec // as above
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(text)))
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

type discovered struct {
	*Discovery
	served     map[string]string // roots, by model
	configured map[string]string
	now        time.Time
	local      *Local
}

func (d *discovered) wanted() map[string]Wanted {
	out := map[string]Wanted{}
	for model, root := range d.served {
		out[model] = Wanted{Root: root, Flags: Flags{StoreBytes: -1}}
	}
	for model, root := range d.configured {
		out[model] = Wanted{Root: root, Flags: Flags{StoreBytes: -1, ContentFormat: "string"}, Configured: true}
	}
	return out
}

func newDiscovered(t *testing.T, env map[string]string, download bool) *discovered {
	t.Helper()
	hub := must.Get(modelfiles.New(func(k string) string { return env[k] }))(t)
	d := &discovered{served: map[string]string{}, configured: map[string]string{}, now: time.Unix(1000, 0), local: NewLocal(LocalOptions{})}
	d.Discovery = NewDiscovery(DiscoveryOptions{
		Wanted: d.wanted, Hub: hub, Download: func() bool { return download }, Local: d.local, Now: func() time.Time { return d.now },
	})
	return d
}

func (d *discovered) only(t *testing.T) Found {
	t.Helper()
	d.Look(t.Context())
	all := d.Found()
	if len(all) != 1 {
		t.Fatalf("%d models: %+v", len(all), all)
	}
	return all[0]
}

func (d *discovered) loaded(model string) bool {
	_, ok := d.local.models.Load(model)
	return ok
}

// Found files, and missing ones, are in the log once.
func TestDiscoverySaysOnceWhatItFound(t *testing.T) {
	dir := must.Get(filepath.Abs(filepath.Join("..", "..", ".cache", "models", "gpt2")))(t)
	var log strings.Builder
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
	d.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	d.served["found"], d.served["missing"] = dir, "/models/nowhere"
	for range 3 {
		d.Look(t.Context())
		d.now = d.now.Add(2 * discoverRest)
	}
	for _, says := range []string{"tokenizer found; it is used once a replica has confirmed it", "from=path", "no tokenizer found by itself"} {
		if n := strings.Count(log.String(), says); n != 1 {
			t.Errorf("%q is said %d times:\n%s", says, n, log.String())
		}
	}
}

// TestAFailureIsAWarning: files that cannot be fetched, written or loaded are a warning,
// once, and marked; files that are nowhere on purpose are neither.
func TestAFailureIsAWarning(t *testing.T) {
	url, _ := standIn(t)
	file := filepath.Join(t.TempDir(), "file") // no folder can be made in it
	broken := t.TempDir()
	for path, text := range map[string]string{file: "", filepath.Join(broken, "tokenizer.json"): "{"} {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for name, c := range map[string]struct {
		root, home, endpoint string
		forbidden, failed    bool
		says                 string
	}{
		"not written":  {root: "own/model", home: file, failed: true, says: "not a directory"},
		"not writable": {root: "own/model", home: "/sys/fs/warmroute", failed: true, says: "set HF_HOME to a folder that the router can write"},
		"gated":        {root: "own/gated", failed: true, says: "HF_TOKEN"},
		"not there":    {root: "own/other", failed: true, says: "does not have it"},
		"not reached":  {root: "own/model", endpoint: "http://127.0.0.1:1", failed: true, says: "refused"},
		"not loaded":   {root: broken, failed: true, says: "tokenizer"},
		"forbidden":    {root: "own/model", forbidden: true, says: "tokens.download"},
		"no such path": {root: "/models/nowhere", says: "no folder"},
		"not reported": {root: "", says: "do not report"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDiscovered(t, map[string]string{"HF_HOME": cmp.Or(c.home, t.TempDir()), "HF_ENDPOINT": cmp.Or(c.endpoint, url)}, !c.forbidden)
			var log strings.Builder
			d.o.Log = slog.New(slog.NewTextHandler(&log, nil))
			d.served["m"] = c.root
			for range 3 {
				if f := d.only(t); f.Failed != c.failed || !strings.Contains(f.Error, c.says) {
					t.Errorf("%+v", f)
				}
				d.now = d.now.Add(2 * discoverRest)
			}
			warnings, want := strings.Count(log.String(), "level=WARN"), 0
			if c.failed {
				want = 1
			}
			if warnings != want || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("%d warnings, want %d: %s", warnings, want, log.String())
			}
		})
	}
}

// Without a cache (no HOME) a path is found all the same, and a name is not.
func TestDiscoveryWithoutACache(t *testing.T) {
	dir := must.Get(filepath.Abs(filepath.Join("..", "..", ".cache", "models", "gpt2")))(t)
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, true)
	d.o.Hub = nil
	d.served["m"] = dir
	if f := d.only(t); f.From != FromPath || f.Folder != dir || !d.loaded("m") {
		t.Errorf("%+v", f)
	}
	d.served["m"] = "own/model"
	if f := d.only(t); !strings.Contains(f.Error, "no Hugging Face cache") || !f.Failed {
		t.Errorf("%+v", f)
	}
}

// A model that is nowhere on this machine is fetched once and found in the cache
// from then on; no hub is contacted where that is forbidden or the root is not a
// hub's name.
func TestDiscoveryFetches(t *testing.T) {
	url, asked := standIn(t)
	home := t.TempDir()
	env := map[string]string{"HF_HOME": home, "HF_ENDPOINT": url}
	for root, says := range map[string]string{"own/model": "tokens.download", "/models/x": "no folder", "alias": "no folder", "": "do not report"} {
		d := newDiscovered(t, env, false)
		d.served["m"] = root
		if f := d.only(t); !strings.Contains(f.Error, says) || d.loaded("m") || asked.Load() != 0 {
			t.Errorf("%q: %+v, %d questions", root, f, asked.Load())
		}
	}
	offline := newDiscovered(t, map[string]string{"HF_HOME": home, "HF_ENDPOINT": url, "HF_HUB_OFFLINE": "1"}, true)
	offline.served["m"] = "own/model"
	if f := offline.only(t); !strings.Contains(f.Error, "HF_HUB_OFFLINE") || asked.Load() != 0 {
		t.Errorf("offline: %+v, %d questions", f, asked.Load())
	}
	d := newDiscovered(t, env, true)
	d.served["m"] = "own/model"
	if f := d.only(t); f.From != FromHub || f.Commit != hubCommit || f.Error != "" || !d.loaded("m") {
		t.Fatalf("%+v", f)
	}
	n := asked.Load()
	if f := d.only(t); f.From != FromHub || asked.Load() != n {
		t.Errorf("looked for again: %+v", f)
	}
	again := newDiscovered(t, env, false)
	again.served["m"] = "own/model"
	if f := again.only(t); f.From != FromCache || f.Commit != hubCommit || asked.Load() != n {
		t.Errorf("the second router: %+v", f)
	}
}

// A failed attempt is repeated after a wait that grows; another root starts over.
func TestDiscoveryWaitsAfterAFailure(t *testing.T) {
	url, asked := standIn(t)
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir(), "HF_ENDPOINT": url}, true)
	d.served["m"] = "own/gated"
	if f := d.only(t); !strings.Contains(f.Error, "HF_TOKEN") || asked.Load() != 1 {
		t.Fatalf("%+v, %d questions", f, asked.Load())
	}
	for _, c := range []struct {
		later time.Duration
		asked int64
	}{{discoverRetry - 1, 1}, {1, 2}, {2*discoverRetry - 1, 2}, {1, 3}, {3 * discoverRetry, 3}} {
		d.now = d.now.Add(c.later)
		if d.only(t); asked.Load() != c.asked {
			t.Errorf("%v later: %d questions, want %d", c.later, asked.Load(), c.asked)
		}
	}
	d.served["m"] = "own/model"
	if f := d.only(t); f.From != FromHub || !d.loaded("m") {
		t.Errorf("another root: %+v", f)
	}
}

// A model whose search, download or load does not end delays no other, and Busy names
// it with the phase.
func TestDiscoveryStuckModelsDelayNoOther(t *testing.T) {
	release := make(chan struct{})
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		http.NotFound(w, r)
	}))
	defer hub.Close()
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir(), "HF_ENDPOINT": hub.URL}, true)
	d.o.Files = func(model, _ string) { // stands for work that does not end
		if strings.HasPrefix(model, "stuck") {
			<-release
		}
	}
	for i := range fetchesAtOnce + 2 {
		d.served[fmt.Sprintf("fetched %d", i)] = fmt.Sprintf("own/model%d", i)
	}
	for i := range searchesAtOnce - 1 {
		d.served[fmt.Sprintf("stuck %d", i)] = gpt2(t)
	}
	for i := range 20 {
		d.served[fmt.Sprintf("zz good %d", i)] = gpt2(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	waitFor(t, func() bool {
		for i := range 20 {
			if !d.loaded(fmt.Sprintf("zz good %d", i)) {
				return false
			}
		}
		return len(d.Busy()) == fetchesAtOnce+searchesAtOnce-1
	})
	phases := map[string]int{}
	for _, b := range d.Busy() {
		phases[b.Phase]++
		if !b.Since.Equal(d.now) {
			t.Errorf("%+v", b)
		}
	}
	if phases[phaseFetching] != fetchesAtOnce || phases[phaseSearching] != searchesAtOnce-1 {
		t.Errorf("under way: %v", phases)
	}
	cancel()
	close(release)
	<-ended
}

// A fetched model that is loaded beside the searches lets no further search begin.
func TestDiscoveryBoundsSearches(t *testing.T) {
	behind, _ := standIn(t)
	to := must.Get(url.Parse(behind))(t)
	answers, reached, release := make(chan struct{}), make(chan string), make(chan struct{})
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-answers
		httputil.NewSingleHostReverseProxy(to).ServeHTTP(w, r)
	}))
	defer hub.Close()
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir(), "HF_ENDPOINT": hub.URL}, true)
	d.o.Files = func(model, _ string) {
		select {
		case reached <- model:
			<-release
		case <-release:
		}
	}
	var running sync.WaitGroup
	d.served["fetched"] = "own/model"
	d.start(t.Context(), &running)
	waitFor(t, func() bool { return d.Busy()[0].Phase == phaseFetching })
	for i := range searchesAtOnce {
		d.served[fmt.Sprintf("searched %d", i)] = gpt2(t)
	}
	d.start(t.Context(), &running)
	for range searchesAtOnce {
		<-reached
	}
	close(answers)
	if model := <-reached; model != "fetched" {
		t.Errorf("%q is loaded, want the fetched model", model)
	}
	for i := range 20 {
		d.served[fmt.Sprintf("waits %d", i)] = gpt2(t)
	}
	if begun := d.start(t.Context(), &running); begun > 0 {
		t.Errorf("%d searches begin beside %d", begun, searchesAtOnce)
	}
	close(release)
	running.Wait()
}

// A model that cannot be used takes no place among the loaded tokenizers.
func TestDiscoveryReleasesBrokenModels(t *testing.T) {
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
	d.served["broken"] = copyModel(t, gpt2(t), map[string]string{"chat_template.jinja": "{% for %}"})
	if f := d.only(t); f.Error == "" || d.loaded("broken") {
		t.Fatalf("the template compiles: %+v", f)
	}
	if s := d.o.Library.Stats(); s != (LibraryStats{}) {
		t.Errorf("the library keeps %+v", s)
	}
}

// A failed search is tried after one that was never tried.
func TestDiscoveryTriesNewModelsFirst(t *testing.T) {
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
	for i := range 50 {
		d.served[fmt.Sprintf("missing %d", i)] = "/models/nowhere"
	}
	d.Look(t.Context())
	d.now = d.now.Add(discoverRetry)
	d.served["z"] = gpt2(t)
	if due := d.due(d.wanted(), d.now); len(due) != 51 || due[0] != "z" {
		t.Errorf("the first of %d is %q", len(due), due[0])
	}
}

// A model that is configured while it is being found is loaded as configured, and the Library has it
// once.
func TestConfiguredWhileLoading(t *testing.T) {
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
	var later atomic.Bool
	var running sync.WaitGroup
	d.o.Files = func(string, string) {
		if !later.Swap(true) {
			d.configured["m"] = gpt2(t)
			d.start(t.Context(), &running)
			running.Wait() // the later attempt ends first
		}
	}
	d.served["m"] = gpt2(t)
	d.Look(t.Context())
	if f := d.only(t); !d.loaded("m") || f.Error != "" || d.attempts["m"].held == nil || d.o.Library.Stats().Names != 1 || d.o.Library.Stats().Models != 1 {
		t.Errorf("%+v, held %t, %+v", f, d.attempts["m"].held != nil, d.o.Library.Stats())
	}
}

// Configured models are fetched though downloads are forbidden, told of wherever they fail, tried again
// every minute, first of all, and unloaded as soon as they are not configured.
func TestConfiguredModels(t *testing.T) {
	url, asked := standIn(t)
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir(), "HF_ENDPOINT": url}, false)
	d.served["a"], d.configured["m"] = "/models/nowhere", "own/model"
	if due := d.due(d.wanted(), d.now); len(due) != 2 || due[0] != "m" {
		t.Errorf("due are %q", due)
	}
	delete(d.served, "a")
	if f := d.only(t); f.From != FromHub || !d.loaded("m") || asked.Load() == 0 {
		t.Fatalf("%+v", f)
	}
	d.configured["m"] = "/models/nowhere"
	if f := d.only(t); !f.Failed || f.Error == "" || !d.loaded("m") {
		t.Errorf("another folder, which is not there: %+v", f)
	}
	for range 5 {
		before := d.attempts["m"]
		d.now = d.now.Add(discoverRetry)
		if d.Look(t.Context()); d.attempts["m"] == before {
			t.Error("not tried again after a minute")
		}
	}
	d.configured["m"] = gpt2(t)
	if f := d.only(t); f.From != FromPath || f.Failed || !d.loaded("m") {
		t.Errorf("a folder: %+v", f)
	}
	delete(d.configured, "m")
	if d.Look(t.Context()); d.loaded("m") || len(d.Found()) != 0 || d.o.Library.Stats() != (LibraryStats{}) {
		t.Errorf("not configured any more: %+v, %+v", d.Found(), d.o.Library.Stats())
	}
	d.configured["m"] = gpt2(t)
	d.only(t)
	delete(d.configured, "m")
	d.served["m"] = gpt2(t)
	if f := d.only(t); f.From != FromPath || !d.loaded("m") || d.attempts["m"].want.Configured {
		t.Errorf("served alone: %+v", f)
	}
}

// Again tries at once what has failed.
func TestDiscoveryAgain(t *testing.T) {
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
	d.served["m"] = filepath.Join(t.TempDir(), "later")
	if f := d.only(t); f.Error == "" {
		t.Fatalf("%+v", f)
	}
	must.Do(t, os.Symlink(gpt2(t), d.served["m"]))
	if d.Look(t.Context()); d.loaded("m") {
		t.Error("tried before its time")
	}
	d.Again()
	if d.Look(t.Context()); !d.loaded("m") {
		t.Error("not tried again")
	}
}
