package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

var update = flag.Bool("update", false, "rewrite the examples' envoy.yaml")

// TestExamplesLoad: every example's configuration is valid, and `extproc envoy-config`
// prints its Envoy bootstrap for it.
func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/warmroute.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			c := must.Get(loadConfig(file))(t)
			boot := filepath.Join(filepath.Dir(file), "envoy.yaml")
			if _, err := os.Stat(boot); os.IsNotExist(err) {
				return // a gateway brings its own Envoy; a new one begins as an empty file
			}
			var want bytes.Buffer
			must.Do(t, envoy.WriteBootstrap(&want, c.envoyOptions()))
			if *update {
				must.Do(t, os.WriteFile(boot, want.Bytes(), 0o644))
			}
			got := must.Get(os.ReadFile(boot))(t)
			if !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%s is not what envoy-config prints; run go test ./cmd/extproc -update", boot)
			}
		})
	}
}

// TestComposeFileHoldsTogether: Envoy's version is the tested one, and the hosts of
// warmroute.yaml are names in the compose file. test/compose tests how compose itself
// reads the file.
func TestComposeFileHoldsTogether(t *testing.T) {
	const dir = "../../examples/compose"
	raw := must.Get(os.ReadFile(filepath.Join(dir, "compose.yaml")))(t)
	var c struct {
		Services map[string]struct {
			Image    string
			Networks map[string]struct{ Aliases []string }
		}
	}
	must.Do(t, yaml.Unmarshal(raw, &c))
	names := map[string]bool{}
	for name, s := range c.Services {
		names[name] = true
		for _, alias := range s.Networks["default"].Aliases {
			names[alias] = true
		}
	}
	if got := c.Services["envoy"].Image; got != "${ENVOY_IMAGE:-envoyproxy/envoy:v"+envoy.Version+"}" {
		t.Errorf("compose runs %s, tested is %s", got, envoy.Version)
	}
	conf := must.Get(loadConfig(filepath.Join(dir, "warmroute.yaml")))(t)
	for _, addr := range append(conf.envoyOptions().Replicas, conf.envoyOptions().ExtProc...) {
		host, _, _ := strings.Cut(addr, ":")
		if !names[host] {
			t.Errorf("%s is no name in the compose file", host)
		}
	}
}
