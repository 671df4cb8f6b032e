package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// rewrite replaces a configuration file's content by text.
func rewrite(t *testing.T, file *config.File[Config], text string) {
	t.Helper()
	must.Do(t, os.WriteFile(file.Path, []byte(text), 0o600))
}

// routerOf writes a configuration file and makes its router, with metrics.
func routerOf(t *testing.T, file *config.File[Config], text string) (*router, Config) {
	t.Helper()
	rewrite(t, file, text)
	c := must.Get(file.Load())(t)
	reg := prometheus.NewRegistry()
	r := must.Get(newRouter(c, slog.New(slog.DiscardHandler), reg))(t)
	r.metrics = reg
	return r, c
}

// startRouter runs a router until the test ends and waits until it is ready.
// text is its configuration except for the addresses.
func startRouter(t *testing.T, text string) (r *router, service string) {
	t.Helper()
	ports := must.Get(testenv.FreePorts(3))(t)
	service, admin := fmt.Sprint("127.0.0.1:", ports[1]), fmt.Sprint("127.0.0.1:", ports[2])
	if !strings.Contains(text, "index_service:") {
		text += "index_service: {listen: \"\"}\n" // its default port may be another process's
	}
	text = fmt.Sprintf("listen: 127.0.0.1:%d\nadmin: {listen: %q}\nxds: {listen: \"\"}\n", ports[0], admin) + strings.ReplaceAll(text, "SERVICE", service)
	file := &config.File[Config]{Path: filepath.Join(t.TempDir(), "warmroute.yaml"), Defaults: defaultConfig}
	r, _ = routerOf(t, file, text)
	testenv.Run(t, func(ctx context.Context) error { return r.run(ctx, file) })
	until(t, "the router is ready", func() bool { code, _ := get(t, "http://"+admin+"/readyz"); return code == http.StatusOK })
	return r, service
}

// TestWarmUp: a router that starts gets its peer's state of replicas whose
// replay buffers no longer reach back, and the events that came in between.
func TestWarmUp(t *testing.T) {
	sim := testenv.StartSimulator(t, "-buffer-steps", "3")
	secret := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(secret, []byte("s3cret"), 0o600))
	fleet := fmt.Sprintf("fleet: {replicas: [{address: %q}]}\n", sim.Addr)
	old, service := startRouter(t, fleet+"index_service: {listen: \"SERVICE\", token_file: "+secret+"}\n")
	holder := index.Holder{Replica: sim.Addr}
	turn := func(n int) {
		prompt := make([]uint32, 64)
		for i := range prompt {
			prompt[i] = uint32(1000*n + i)
		}
		complete(t, sim.Addr, prompt)
	}
	for n := range 12 {
		turn(n + 1)
	}
	until(t, "the first router knows twelve prompts", func() bool { return old.replicas.index.Holdings(holder) == 48 })
	until(t, "its place in the stream is known", func() bool { return len(old.replicas.feed.Cursors()) == 1 })

	cold, _ := startRouter(t, fleet+"index_service: {listen: \"SERVICE\"}\n")
	if n := cold.replicas.index.Holdings(holder); n >= 48 {
		t.Fatalf("a router without a peer knows %d blocks: the test shows nothing", n)
	}
	warm, _ := startRouter(t, fleet+"index_service: {listen: \"SERVICE\", token_file: "+secret+"}\nwarm_up: {peers: [\"127.0.0.1:1\", \""+service+"\"]}\n")
	until(t, "the second router knows twelve prompts", func() bool { return warm.replicas.index.Holdings(holder) == 48 })
	turn(13)
	until(t, "it follows the replica", func() bool { return warm.replicas.index.Holdings(holder) == 52 })
	if st := warm.replicas.feed.Status(); st[0].Ranks[0].Lost+st[0].Ranks[0].Restarts > 0 {
		t.Errorf("%+v: it began anew", st[0].Ranks[0].Status)
	}
}

func TestWarmUpIsValidated(t *testing.T) {
	for text, want := range map[string]string{
		`{peers: ["10.0.0.8"]}`: `warm_up.peers[0]: "10.0.0.8" is not host:port`,
		"{peers: [\"10.0.0.8:9003\"]}\nindex_service: {token_file: t}": "warm_up.peers[0]: the token of index_service would be sent to 10.0.0.8:9003 without encryption",
		`{tls: {ca_file: c}}`: "warm_up.tls.enabled: is false",
		`{peers: ["h:1"], tls: {enabled: true, cert_file: "c"}}`: "warm_up.tls.key_file: is missing",
	} {
		if _, err := parseConfig(t, "warm_up: "+text); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := parseConfig(t, "index_service: {token_file: t}\nwarm_up: {peers: [\"10.0.0.8:9003\"], tls: {enabled: true, server_name: peer}}"); err != nil {
		t.Error(err)
	}
}
