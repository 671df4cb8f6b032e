package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"warmroute/render/testkit/must"
)

// TestRefused: a mistake in the values is one sentence, in the terms of the values.
func TestRefused(t *testing.T) {
	const pool = `pool: {name: p}`
	for values, want := range map[string]string{
		`{replicas: 2}`:             `at '/replicas': got number, want object`,
		`{routers: 0}`:              `at '/routers': minimum: got 0, want 1`,
		`{` + pool + `, router: 2}`: `at '': additional properties 'router' not allowed`,
		`{` + pool + `, networkPolicy: {gateways: []}}`:                                                   `at '/networkPolicy/gateways': minItems: got 0, want 1`,
		`{` + pool + `, admin: {tokenSecret: a b}}`:                                                       `at '/admin/tokenSecret': 'a b' does not match pattern`,
		`{pool: {version: v1alpha2}}`:                                                                     `at '/pool': additional properties 'version' not allowed`,
		`{` + pool + `, sidecar: {enabled: true}}`:                                                        `name sidecar.tlsSecret or sidecar.tokenSecret`,
		`{config: {flet: {replicas: [{address: "10.0.0.1:8000"}]}}}`:                                      `at '/config': additional properties 'flet' not allowed`,
		`{config: {fleet: {replicas: [{adress: "10.0.0.1:8000"}]}}}`:                                      `at '/config/fleet/replicas/0': additional properties 'adress' not allowed`,
		`{` + pool + `, config: {filter: {max_streams: many}}}`:                                           `at '/config/filter/max_streams': 'many' does not match pattern`,
		`{` + pool + `, config: {filter: {token_budget: 50}}}`:                                            `at '/config/filter/token_budget': maximum: got 50, want 0`,
		`{` + pool + `, config: {policy: {models: {m: {tft: {}}}}}}`:                                      `at '/config/policy/models/m': additional properties 'tft' not allowed`,
		`{` + pool + `, config: {filter: {mode: shadow}}}`:                                                `set config.filter.always_pick: false`,
		`{` + pool + `, config: {filter: {share: 10}}}`:                                                   `set config.filter.always_pick: false`,
		`{` + pool + `, config: {listen: "127.0.0.1:9002"}}`:                                              `config.listen: "127.0.0.1:9002" is not reached from other pods`,
		`{` + pool + `, config: {health: {listen: ""}}}`:                                                  `config.health.listen: "" is not reached from other pods`,
		`{` + pool + `, config: {health: {listen: "0.0.0.0:${P}"}}}`:                                      `or its port is not known`,
		`{` + pool + `, routers: 2, config: {peers: {listen: ":1"}}}`:                                     `set peers.port instead`,
		`{` + pool + `, sidecar: {enabled: true, tlsSecret: s}, config: {index_service: {listen: ":1"}}}`: `config.index_service.listen: ":1" is not at port 9003`,
		`{` + pool + `, resources: {limits: {memory: 1Gi}}, config: {index: {max_blocks: 67108864}}}`:     `at most 22369620 do`,
		`{` + pool + `, routers: 2, peers: {port: 9002}}`:                                                 `config.listen and peers.port share port 9002`,
		`{` + pool + `, config: {health: {listen: "0.0.0.0:9090"}}}`:                                      `config.admin.listen and config.health.listen share port 9090`,
		`{` + pool + `, sidecar: {enabled: true, tlsSecret: s}, config: {listen: ":9003"}}`:               `config.listen and the index service share port 9003`,
		`{config: {fleet: {replicas: [{address: "10.0.0.1:8000"}]}}, extproc: {clientCASecret: c}}`:       `name extproc.tlsSecret, too`,
		`{}`:                                `there is no source of replicas: name an InferencePool in pool.name, or list config.fleet.replicas or config.fleet.dns`,
		`{config: {fleet: {replicas: []}}}`: `there is no source of replicas`,
	} {
		_, err := try(values)
		switch {
		case err == nil:
			t.Errorf("values %s were taken", values)
		case strings.Count(err.Error(), want) != 1 || strings.Count(err.Error(), "\n- ") > 1 || strings.Contains(err.Error(), "\n  "):
			t.Errorf("%s: %v; want one sentence with %q", values, err, want)
		}
	}
}

// TestSchemaTakesExamples: the schema of the router's configuration takes that of every
// example, and what `extproc check` takes beside the plain form.
func TestSchemaTakesExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/warmroute.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v %v", files, err)
	}
	configs := map[string]string{
		"variables": `{fleet: {replicas: [{address: "${ADDRESS}"}], scrape_interval: "${WAIT:-1s}"}, filter: {max_streams: "${RANKED}", picker: "${PICKER}", share: "${SHARE}"}}`,
		"other forms": `{fleet: {dns: [{name: "a:1", replica: {name: 7, hash_seed: 0}}]}, envoy: {idle_timeout: 0, message_timeout: 1m30s},
			policy: {ttft: {lambda: 2}, models: {m: {ttft: {lambda: 2.5}}}}, filter: {max_body: 67108864}}`,
	}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		configs[file] = strings.NewReplacer("127.0.0.1:9002", "0.0.0.0:9002", "127.0.0.1:9006", "0.0.0.0:9006").Replace(string(text)) // which other pods reach
	}
	for name, text := range configs {
		var config map[string]any
		must.Do(t, yaml.Unmarshal([]byte(text), &config))
		values := must.Get(yaml.Marshal(map[string]any{"config": config}))(t)
		if _, err := try(string(values)); err != nil {
			t.Error(fmt.Errorf("%s: %w", name, err))
		}
	}
}
