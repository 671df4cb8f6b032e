package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// following is a router in this process, and a real Envoy that takes everything
// from it.
type following struct {
	t     *testing.T
	r     *router
	admin string // of the router
	envoy *testenv.Envoy
	sent  int
}

// follow starts both on a configuration without addresses.
func follow(t *testing.T, text string) *following {
	t.Helper()
	at := testenv.Addresses(t, 5)
	f, dir := &following{t: t, admin: at[1]}, t.TempDir()
	text = fmt.Sprintf("listen: %s\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: %q}\nenvoy: {listen: %q, admin: %q, served_header: true, access_log: none}\nfilter: {token_budget: 5s}\n",
		at[0], at[1], at[2], at[3], at[4]) + text
	file := &config.File[Config]{Path: filepath.Join(dir, "warmroute.yaml"), Defaults: defaultConfig}
	r, c := routerOf(t, file, text)
	f.r = r
	testenv.Run(t, func(ctx context.Context) error { return f.r.run(ctx, file) })
	until(t, "the router is ready", func() bool { code, _ := get(t, "http://"+f.admin+"/readyz"); return code == http.StatusOK })
	var boot bytes.Buffer
	must.Do(t, c.writeEnvoy(stdio{Out: &boot, Err: t.Output()}, false, false))
	f.envoy = must.Get(testenv.StartEnvoy(dir, "envoy", boot.Bytes(), at[3], at[4]))(t)
	t.Cleanup(f.envoy.Stop)
	return f
}

// ask sends one request and returns who served it.
func (f *following) ask() string {
	f.t.Helper()
	f.sent++
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp := must.Get(client.Post(f.envoy.URL+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"sim","prompt":[%d,2,3],"max_tokens":1}`, f.sent))))(f.t)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s, %v", resp.Status, err)
	}
	return resp.Header.Get(envoy.HeaderServed)
}
