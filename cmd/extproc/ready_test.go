package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/admin"
	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestReadinessFollowsReplicas: a model whose replicas are gone is a note and a
// number; where all are gone a picker that needs one is not ready, others are.
func TestReadinessFollowsReplicas(t *testing.T) {
	ports := must.Get(testenv.FreePorts(2))(t)
	admin := fmt.Sprintf("127.0.0.1:%d", ports[1])
	text := fmt.Sprintf("listen: 127.0.0.1:%d\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfilter: {picker: true, ready_needs_replica: true}\n"+
		"fleet:\n  scrape_interval: 100ms\n  dead_after: 500ms\n  replicas:\n", ports[0], admin)
	stops := map[string]func(){}
	for _, model := range []string{"org/a", "b"} {
		sim := testenv.StartSimulator(t, "-model", model, "-events", "", "-replay", "")
		stops[model] = sim.Stop
		text += fmt.Sprintf("  - {address: %q, no_events: true}\n", sim.Addr)
	}
	hangup := make(chan os.Signal, 1)
	file := &config.File[Config]{Path: filepath.Join(t.TempDir(), "c.yaml"), Defaults: defaultConfig, Every: time.Hour, Settle: time.Millisecond, Now: hangup}
	r, _ := routerOf(t, file, text)
	testenv.Run(t, func(ctx context.Context) error { return r.run(ctx, file) })
	state := func(what string, code int, says string, metrics ...string) {
		t.Helper()
		until(t, what, func() bool {
			got, page := get(t, "http://"+admin+"/readyz")
			_, counts := get(t, "http://"+admin+"/metrics")
			for _, m := range metrics {
				if !strings.Contains(counts, "warmroute_fleet_model_replicas"+m) {
					return false
				}
			}
			return got == code && strings.Contains(page, says) && (says != "" || !strings.Contains(page, "note:"))
		})
	}
	const alone = "note: no Envoy is connected to 127.0.0.1:"
	state("nobody is connected", http.StatusOK, alone)
	envoy := must.Get(net.Dial("tcp", r.reloads.inForce().Listen))(t)
	defer envoy.Close()
	state("both serve", http.StatusOK, "", `{model="b",state="ready"} 1`, `{model="org/a",state="ready"} 1`)
	for model, want := range map[string]int{"org/a": http.StatusOK, "org/x": http.StatusNotFound} { // a served model's settings can be changed, another's cannot
		req := must.Get(http.NewRequest(http.MethodPatch, "http://"+admin+"/policy/"+model, strings.NewReader(`{"min_prefix_match":0.5}`)))(t)
		resp := must.Get(http.DefaultClient.Do(req))(t)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("PATCH of %s: %s, want %d", model, resp.Status, want)
		}
	}
	rewrite(t, file, strings.Replace(text, ", no_events: true", "", 1))
	hangup <- syscall.SIGHUP
	state("one has no events, and that is not configured", http.StatusOK, "note: replicas without KV events, whose caches are known from what was sent there alone: 127.0.0.1:")
	if _, page := get(t, "http://"+admin+"/metrics"); !strings.Contains(page, "warmroute_kv_sources{state=\"none\"} 1\n") || !strings.Contains(page, "warmroute_kv_sources{state=\"off\"} 1\n") {
		t.Error("the metric does not count both")
	}
	rewrite(t, file, text)
	hangup <- syscall.SIGHUP
	state("it is configured again", http.StatusOK, "", `{model="b",state="ready"} 1`, `{model="org/a",state="ready"} 1`)
	stops["b"]()
	state("b is missed", http.StatusOK, `note: no replica of model "b" is ready`, `{model="b",state="ready"} 0`, `{model="org/a",state="ready"} 1`)
	stops["org/a"]()
	state("nobody serves", http.StatusServiceUnavailable, "no replica is ready", `{model="b",state="ready"} 0`, `{model="org/a",state="ready"} 0`)
	rewrite(t, file, strings.Replace(text, ", ready_needs_replica: true", "", 1))
	hangup <- syscall.SIGHUP
	state("it is asked for no longer", http.StatusOK, "note: no replica is ready, of 2")
}

// TestReadyCommand: it prints the page of the port that the file names, and fails unless
// the router is ready.
func TestReadyCommand(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintln(w, r.URL.Path, "of the router")
	}))
	defer s.Close()
	here := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := net.SplitHostPort(here)
	gone := testenv.Addresses(t, 1)[0]
	for _, c := range []struct {
		text   string
		status int
		fails  bool
	}{
		{"admin: {listen: %q}", http.StatusOK, false},
		{"admin: {listen: %q}", http.StatusServiceUnavailable, true},
		{"health: {listen: %q}\nadmin: {listen: \"" + gone + "\"}", http.StatusOK, false},
		{"health: {listen: \"0.0.0.0:" + port + "\"} # %q", http.StatusOK, false}, // as containers have it
		{"health: {listen: \"" + gone + "\"}\nadmin: {listen: %q}", http.StatusOK, true},
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		must.Do(t, os.WriteFile(file, fmt.Appendf(nil, c.text+"\nfleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n", here), 0o600))
		status = c.status
		var out, errs bytes.Buffer
		err := program().Run(t.Context(), []string{"ready", "-config", file}, stdio{Out: &out, Err: &errs})
		if (err != nil) != c.fails || strings.HasPrefix(c.text, "admin") && out.String() != "/readyz of the router\n" {
			t.Errorf("%s, %d: %v, printed %q", c.text, c.status, err, out.String())
		}
	}
}

// TestRouterIsAskedDirectly: a proxy of the environment, such as Docker gives to its containers, is
// not asked for the router's own pages.
func TestRouterIsAskedDirectly(t *testing.T) {
	if os.Getenv("HTTP_PROXY") == "" { // which a process reads once
		c := exec.Command(os.Args[0], "-test.run=^TestRouterIsAskedDirectly$")
		c.Env = append(os.Environ(), "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY=")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	l := must.Get(net.Listen("tcp", "0.0.0.0:0"))(t)
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"decisions":[{"reason":"cold"}]}`)
	})}}
	srv.Start()
	defer srv.Close()
	at := fmt.Sprintf("0.0.0.0:%d", l.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(t.TempDir(), "c.yaml")
	must.Do(t, os.WriteFile(file, []byte("fleet: {replicas: [{address: 10.0.0.1:8000}]}\nhealth: {listen: '"+at+"'}\n"), 0o600))
	for _, args := range [][]string{{"ready", file}, {"explain", "-last", "-admin", at}} {
		if err := program().Run(t.Context(), args, stdio{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}); err != nil {
			t.Errorf("%s: %v", args[0], err)
		}
	}
}

// TestTakenPorts: the error names the setting whose address is taken.
func TestTakenPorts(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
	for name, set := range map[string]func(c *Config) *string{
		"admin.listen":  func(c *Config) *string { return &c.Admin.Listen },
		"health.listen": func(c *Config) *string { return &c.Health.Listen },
	} {
		c := defaultConfig()
		c.Admin.Listen, c.Health.Listen = "127.0.0.1:0", ""
		*set(&c) = taken.Addr().String()
		if _, err := r.pages(c, new(admin.Gate)); err == nil || !strings.HasPrefix(err.Error(), name+": listen tcp "+taken.Addr().String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
