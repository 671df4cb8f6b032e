package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/config"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/prefill"
	"warmroute/internal/testenv"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// TestHonestReload: a changed file takes effect on SIGHUP, fields that need a
// restart are named until file and process agree, and a refused file is
// reported.
func TestHonestReload(t *testing.T) {
	ports := must.Get(testenv.FreePorts(4))(t)
	admin := fmt.Sprintf("127.0.0.1:%d", ports[1])
	base := fmt.Sprintf("listen: 127.0.0.1:%d\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: 127.0.0.1:%d}\npeers: {url: \"nats://127.0.0.1:1\"}\n", ports[0], admin, ports[2])
	hangup := make(chan os.Signal, 1)
	file := &config.File[Config]{Path: filepath.Join(t.TempDir(), "c.yaml"), Defaults: defaultConfig, Every: time.Hour, Settle: time.Millisecond, Now: hangup}
	const replicas = "fleet: {replicas: [{address: \"127.0.0.1:1\"}]}\n"
	r, _ := routerOf(t, file, base+replicas)
	log := must.Get(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	defer log.Close()
	r.log = slog.New(slog.NewTextHandler(log, nil))
	testenv.Run(t, func(ctx context.Context) error { return r.run(ctx, file) })
	page := func(path string) string { _, text := get(t, "http://"+admin+path); return text }
	until(t, "ready", func() bool { code, _ := get(t, "http://"+admin+"/readyz"); return code == http.StatusOK })
	reload := func(text, metric string) {
		t.Helper()
		rewrite(t, file, text)
		hangup <- syscall.SIGHUP
		until(t, metric, func() bool { return strings.Contains(page("/metrics"), metric) })
	}
	version := page("/metrics")[strings.Index(page("/metrics"), "warmroute_config_info{"):]
	version, _, _ = strings.Cut(version, "\n")

	reload(base+"log: {level: debug, format: json}\nfilter: {max_streams: 7, token_budget: 1s, mode: shadow, share_by: x-user}\n"+
		"policy: {route_policy: filter-then-score}\nprefill_decode: {mode: pull}\n"+
		"tokens: {download: false, trust: [chat], models: [{id: m, files: /nowhere}]}\nenvoy: {admin: \"127.0.0.1:9901\"}\n"+
		"fleet: {replicas: [{address: \"127.0.0.1:1\"}], scrape_interval: 300ms, dns: [{name: \"nobody.invalid:1\"}], token_file: /proc/self/comm}\n", `warmroute_config_reloads_total{result="applied"} 1`)
	if got := r.dial.Level(); got != slog.LevelDebug {
		t.Errorf("log level %v", got)
	}
	if r.ids.download.Load() || (*r.ids.models.Load())[0].ID != "m" {
		t.Error("tokens were not reloaded")
	}
	if said, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(said), "restart Envoy\" fields=envoy.admin\n") {
		t.Errorf("%v: what Envoy must be restarted for is not logged: %s", err, said)
	}
	until(t, "the model that came is loaded or refused", func() bool {
		return strings.Contains(page("/readyz"), `note: tokens of model "m": replicas compute them, because its tokenizer "/nowhere" cannot be found, fetched or loaded: `)
	})
	until(t, "the other routers are missed", func() bool { return strings.Contains(page("/readyz"), "note: peers: NATS is not reachable") })
	until(t, "other routers get the policy", func() bool { return !strings.Contains(page("/debug/peers"), `"policy_version":0`) })
	for _, note := range []string{"filter.mode is shadow: no request gets a hint", "prefill and decode: no request is split, because filter.mode is shadow"} {
		if !strings.Contains(page("/readyz"), "note: "+note) {
			t.Errorf("%q is not told: %q", note, page("/readyz"))
		}
	}
	if code, text := get(t, "http://"+admin+"/readyz"); code != http.StatusOK {
		t.Errorf("a reload has made the router unready: %s", text)
	}
	if ready := page("/readyz"); strings.Contains(ready, "needs a restart") {
		t.Errorf("all is applied: %s", ready)
	}
	if strings.Contains(page("/metrics"), version) {
		t.Error("the version in force is the old one")
	}

	reload(base+"log: {format: json}\nadmin: {listen: \"127.0.0.1:1\", pprof: true}\n"+replicas, `warmroute_config_last_reload_successful 0`) // admin twice
	if ready := page("/readyz"); !strings.Contains(ready, "note: the configuration file is refused") || !strings.Contains(ready, "stays in use: "+file.Path+":7: admin: is given more than once") {
		t.Errorf("a refused file is not told: %s", ready)
	}
	for i, cut := range []string{"", "\n\n", "# fleet\n", base, base + "fleet: {replicas: []}\n"} { // a file that was cut off
		reload(cut, fmt.Sprintf(`warmroute_config_reloads_total{result="refused"} %d`, i+2))
		if ready := page("/readyz"); !strings.Contains(ready, "the file is empty") && !strings.Contains(ready, "fleet: there is no source of replicas any more") {
			t.Errorf("%q is not told: %s", cut, ready)
		}
		if n := len(r.replicas.fleet.Snapshot().Replicas); n != 1 {
			t.Errorf("%q leaves %d replicas", cut, n)
		}
	}
	moved := strings.Replace(strings.Replace(base, admin, "127.0.0.1:2", 1), fmt.Sprint("127.0.0.1:", ports[2]), "127.0.0.1:3", 1)
	reload(moved+"index: {max_blocks: 5}\n"+replicas, `warmroute_config_reloads_total{result="needs_restart"} 1`)
	if ready := page("/readyz"); !strings.Contains(ready, "note: needs a restart: admin.listen, index.max_blocks, xds.listen\n") || strings.Contains(ready, "file is refused") {
		t.Errorf("what needs a restart is not told: %s", ready)
	}
	reload(base+replicas, `warmroute_config_reloads_total{result="applied"} 2`)
	if ready := page("/readyz"); strings.Contains(ready, "needs a restart") || !strings.Contains(ready, "note: no replica is ready, of 1") {
		t.Errorf("file and process agree again: %s", ready)
	}
}

// TestPatchesOutlastReloads: what was set at run time stays until the file's policy changes.
func TestPatchesOutlastReloads(t *testing.T) {
	c := must.Get(parseConfig(t, "fleet: {replicas: [{address: \"127.0.0.1:1\"}]}\n"))(t)
	r := silentRouter(t, c, prometheus.NewRegistry())
	must.Get(r.decisions.book.Patch("", []byte(`{"min_prefix_match":0}`)))(t)
	for _, step := range []struct {
		change func()
		want   float64
	}{
		{func() { c.Filter.TokenBudget = time.Second }, 0},
		{func() { c.Policy.MinPrefixMatch = new(0.5) }, 0.5},
	} {
		if step.change(); r.apply(c) != nil {
			t.Fatal("a reload is refused")
		}
		if now, _ := r.decisions.book.Config(); *now.MinPrefixMatch != step.want {
			t.Errorf("min_prefix_match is %v, want %v", *now.MinPrefixMatch, step.want)
		}
	}
}

// TestAReloadReachesItsParts: how many replicas a hint names, the time for token ids, whose usage is
// asked for, since when a trial is compared. The replicas' counters are compared, and of one that is not listed any more no
// series is left.
func TestAReloadReachesItsParts(t *testing.T) {
	const slow = 700 * time.Millisecond
	stays, goes := testenv.StartSimulator(t), testenv.StartSimulator(t)
	r, _ := startRouter(t, fmt.Sprintf("fleet: {replicas: [{address: %q}, {address: %q}]}\n", stays.Addr, goes.Addr))
	reload := func(change func(c *Config)) {
		t.Helper()
		c := r.reloads.inForce()
		change(&c)
		must.Do(t, r.apply(c))
	}
	ask := func(route openai.Route, body string) decision.Decision {
		d := r.envoys.filter.Route(t.Context(), &filter.Query{ID: body, Route: route, Body: []byte(body)})
		if d.Reservation != nil {
			d.Reservation.Release()
		}
		return d
	}
	named := func() int {
		return len(strings.Split(ask(openai.Completions, `{"model":"sim","prompt":[1,2,3]}`).Chosen, ","))
	}
	if n := named(); n != 2 {
		t.Errorf("%d replicas are named, want 2", n)
	}
	since, _ := r.outcomes.compared.Figures()
	reload(func(c *Config) { c.Filter.AlwaysPick, c.Filter.TokenBudget = true, slow })
	if n := named(); n != 1 {
		t.Errorf("%d replicas are named, want 1", n)
	}
	signal := func(s syscall.Signal) {
		for _, sim := range []testenv.Simulator{stays, goes} {
			must.Do(t, sim.Signal(s))
		}
	}
	signal(syscall.SIGSTOP)
	began := time.Now()
	if ask(openai.Chat, `{"model":"sim","messages":[{"role":"user","content":"a"}]}`); time.Since(began) < slow {
		t.Errorf("token ids are waited for for %v, want %v", time.Since(began), slow)
	}
	signal(syscall.SIGCONT)
	reload(func(c *Config) { c.Filter.AlwaysPick, c.Filter.Share = false, 50 })
	if again, _ := r.outcomes.compared.Figures(); r.outcomes.usage.percent.Load() != envoy.TrialUsageShare || !again.After(since) {
		t.Errorf("a trial reads the usage of %d percent, and compares since %v", r.outcomes.usage.percent.Load(), again)
	}
	r.outcomes.learn(&outcome.Answer{Hint: goes.Addr, Replica: goes.Addr, Status: 200, Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: 3}})
	_, page := get(t, "http://"+r.reloads.inForce().Admin.Listen+"/metrics")
	if !strings.Contains(page, fmt.Sprintf("warmroute_prediction_difference_tokens_count{model=\"sim\",replica=%q} 1", goes.Addr)) {
		t.Error("an answer is not counted")
	}
	until(t, "the replicas' counters are compared", func() bool {
		const many = 2000 // more answers than are wanted of a replica whose counters have been compared
		asked := 0
		for asked < many && r.outcomes.watch.Curious(stays.Addr, false) {
			asked++
		}
		return asked < many
	})
	reload(func(c *Config) { c.Fleet.Replicas = c.Fleet.Replicas[:1] })
	until(t, "no series of the replica", func() bool {
		_, page := get(t, "http://"+r.reloads.inForce().Admin.Listen+"/metrics")
		return strings.Contains(page, stays.Addr) && !strings.Contains(page, goes.Addr)
	})
}

// TestAReloadedKeyIsSent with requests of token ids, and with prefills.
func TestAReloadedKeyIsSent(t *testing.T) {
	sent := map[string]string{} // by path
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sent[req.URL.Path] = req.Header.Get("Authorization")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer replica.Close()
	addr, key := strings.TrimPrefix(replica.URL, "http://"), filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(key, []byte("of-the-replicas"), 0o600))
	c := defaultConfig()
	c.Fleet.Replicas = []fleet.ReplicaOptions{{Address: addr}}
	r := silentRouter(t, c, prometheus.NewRegistry())
	body := []byte(`{"model":"m","prompt":"a"}`)
	req := must.Get(openai.NewReader(0).Parse(openai.Completions, body))(t)
	for _, want := range []string{"", "Bearer of-the-replicas"} {
		if want != "" {
			c.Fleet.HTTP.TokenFile = key
			must.Do(t, r.apply(c))
		}
		_, _ = r.ids.remote.Ask(t.Context(), req, "m", []tokens.Endpoint{{URL: replica.URL}})
		_, _ = r.envoys.legs.Send(t.Context(), &prefill.Leg{Addr: addr, Route: openai.Completions, Body: body, Timeout: time.Minute})
		if len(sent) != 2 || slices.ContainsFunc(slices.Collect(maps.Values(sent)), func(got string) bool { return got != want }) {
			t.Errorf("%q, want %q", sent, want)
		}
	}
}
