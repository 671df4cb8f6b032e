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

	"warmroute/internal/config"
	"warmroute/internal/testenv"
)

// rewrite replaces a configuration file's content by text.
func rewrite(t *testing.T, file *config.File[Config], text string) {
	t.Helper()
	if err := os.WriteFile(file.Path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// routerOf writes a configuration file and makes its router, with metrics.
func routerOf(t *testing.T, file *config.File[Config], text string) (*router, Config) {
	t.Helper()
	rewrite(t, file, text)
	c, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	r, err := newRouter(c, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	r.metrics = reg
	return r, c
}

// startRouter runs a router until the test ends and waits until it is ready.
// text is its configuration except for the addresses.
func startRouter(t *testing.T, text string) (r *router, service string) {
	t.Helper()
	ports, err := testenv.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
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
