//go:build gateways

package gateways

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/internal/testenv/manifest"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// object is a Kubernetes object.
type object = manifest.Object

var at = manifest.At

// example reads the objects an example's kustomization makes.
func example(t *testing.T, name string) (out []object) {
	t.Helper()
	root := checkout.Root()
	dir := filepath.Join(root, "examples", name)
	k := manifest.Objects(t, filepath.Join(dir, "kustomization.yaml"))[0]
	for _, file := range k["resources"].([]any) {
		out = append(out, manifest.Objects(t, filepath.Join(dir, file.(string)))...)
	}
	config := must.Get(os.ReadFile(filepath.Join(dir, "warmroute.yaml")))(t)
	return append(out, object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": at(k, "configMapGenerator", 0, "name"), "namespace": k["namespace"]},
		"data": object{"warmroute.yaml": string(config)},
	})
}

// backends turns an example's Services into Backends, which the file provider reads, and
// leaves out the objects for the cluster itself.
func backends(t *testing.T, objects []object, replicas []string) (out []object) {
	t.Helper()
	endpoints := map[string][]string{"vllm": replicas, "warmroute": {podIP(9) + ":9002"}}
	for _, o := range objects {
		switch o["kind"] {
		case "Deployment", "ConfigMap":
			continue
		case "Service":
			name := at(o, "metadata", "name").(string)
			if endpoints[name] == nil {
				continue
			}
			spec := object{}
			if at(o, "spec", "ports", 0, "appProtocol") == "kubernetes.io/h2c" {
				spec["appProtocols"] = []any{"gateway.envoyproxy.io/h2c"}
			}
			var list []any
			for _, addr := range endpoints[name] {
				ip, port, _ := strings.Cut(addr, ":")
				n := must.Get(strconv.Atoi(port))(t)
				list = append(list, object{"ip": object{"address": ip, "port": n}})
			}
			spec["endpoints"] = list
			o = object{"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "Backend", "metadata": o["metadata"], "spec": spec}
		case "EnvoyPatchPolicy":
			for _, patch := range at(o, "spec", "jsonPatches").([]any) {
				patch := patch.(object)
				for _, of := range []object{patch, patch["operation"].(object)} {
					for _, key := range []string{"name", "jsonPath"} {
						if text, ok := of[key].(string); ok { // the file provider leaves the kind out
							of[key] = strings.Replace(text, "envoyextensionpolicy/", "/", 1)
						}
					}
				}
			}
		default:
			toBackends(o)
		}
		out = append(out, o)
	}
	return out
}

// toBackends makes every reference to a Service one to the Backend of its name.
func toBackends(v any) {
	switch v := v.(type) {
	case object:
		for key, inner := range v {
			if list, ok := inner.([]any); ok && key == "backendRefs" {
				for _, ref := range list {
					ref := ref.(object)
					ref["group"], ref["kind"] = "gateway.envoyproxy.io", "Backend"
					delete(ref, "port")
				}
			}
			toBackends(inner)
		}
	case []any:
		for _, inner := range v {
			toBackends(inner)
		}
	}
}

// gateway is Envoy Gateway, the Envoy it has started, and all behind it.
type gateway struct {
	*testing.T
	dir      string
	url      string // of Envoy's listener
	admin    string // of Envoy's admin page
	log      string // file of the access log
	router   *router
	replicas []*replica
	file     string // of the router's configuration, while it has another
}

// startGateway starts Envoy Gateway on the example, with three replicas; the
// router is not started. more are further endpoints of the replicas' Service.
func startGateway(t *testing.T, patches bool, more ...string) *gateway {
	t.Helper()
	dir := t.TempDir()
	root := checkout.Root()
	g := &gateway{T: t, dir: dir, url: "http://127.0.0.1:80", log: filepath.Join(dir, "access.log")}
	g.router = &router{t: t, dir: dir, file: filepath.Join(root, "examples", "envoy-gateway", "warmroute.yaml")}
	var addrs []string
	for i := range 3 {
		g.replicas = append(g.replicas, newReplica(t, dir, podIP(i+1)))
		addrs = append(addrs, g.replicas[i].addr())
	}
	g.configure(append(addrs, more...), patches)
	binary := installed(t, "envoy-gateway")
	made := must.Get(testenv.Start(dir, "certgen", nil, binary, "certgen", "--local", "--config-home", filepath.Join(dir, "config")))(t)
	<-made.Done()
	process := start(t, dir, "envoy-gateway", binary, "server", "--config-path", filepath.Join(dir, "envoy-gateway.yaml"))
	until(t, "Envoy's admin address", func() bool {
		select {
		case <-process.Done():
			t.Fatalf("Envoy Gateway ended: %s", process.Tail())
		default:
		}
		return g.findAdmin()
	})
	until(t, "Envoy's port", func() bool { return strings.Contains(g.page("/listeners"), "0.0.0.0:80\n") })
	if patches {
		g.patched()
	}
	return g
}

// patched waits until Envoy has received every patch of the example.
func (g *gateway) patched() {
	g.Helper()
	for _, want := range []string{`"no_traffic_interval": "0.500s"`, `"unhealthy_interval": "0.200s"`, `"update_merge_window": "0s"`,
		`"max_ejection_time": "1s"`, `"host_selection_retry_max_attempts": "200"`} {
		until(g.T, "Envoy is told "+want, func() bool { return strings.Contains(g.page("/config_dump"), want) })
	}
}

// configure writes the files that Envoy Gateway reads.
func (g *gateway) configure(replicas []string, patches bool) {
	g.Helper()
	binary := must.Get(testenv.EnvoyBinary())(g)
	where := filepath.Join(g.dir, "data", "envoy-versions", envoy.Version, "bin")
	for _, dir := range []string{where, filepath.Join(g.dir, "objects")} {
		must.Do(g, os.MkdirAll(dir, 0o755))
	}
	must.Do(g, os.Symlink(binary, filepath.Join(where, "envoy")))
	objects := append([]object{
		{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": object{"name": "eg"}, "spec": object{
			"controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
		}},
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "inference"}},
	}, backends(g.T, example(g.T, "envoy-gateway"), replicas)...)
	for _, o := range objects {
		if o["kind"] == "EnvoyProxy" {
			g.onHost(o["spec"].(object))
		}
	}
	write(g.T, filepath.Join(g.dir, "objects", "all.yaml"), objects...)
	homes := object{}
	for key, name := range map[string]string{"configHome": "config", "dataHome": "data", "stateHome": "state", "runtimeDir": "run"} {
		homes[key] = filepath.Join(g.dir, name)
	}
	extensions := object{"enableBackend": true}
	if patches { // as in the README
		maps.Copy(extensions, inReadme(g.T, "envoy-gateway")[0]["extensionApis"].(object))
	}
	write(g.T, filepath.Join(g.dir, "envoy-gateway.yaml"), object{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyGateway",
		"gateway": object{"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
		"provider": object{"type": "Custom", "custom": object{
			"resource":       object{"type": "File", "file": object{"paths": []any{filepath.Join(g.dir, "objects")}}},
			"infrastructure": object{"type": "Host", "host": homes},
		}},
		"extensionApis": extensions,
	})
}

// onHost configures the proxy to run on Envoy Gateway's host, and to write its log
// on standard output to a file, which the tests read.
func (g *gateway) onHost(proxy object) {
	proxy["provider"] = object{"type": "Host", "host": object{"envoyVersion": envoy.Version}}
	proxy["extraArgs"] = []any{"--file-flush-interval-msec", "200"}
	for _, setting := range at(proxy, "telemetry", "accessLog", "settings").([]any) {
		if file, ok := at(setting, "sinks", 0, "file").(object); ok {
			file["path"], setting.(object)["format"] = g.log, object{"type": "Text", "text": accessLog}
		}
	}
}

func write(t *testing.T, file string, objects ...object) {
	t.Helper()
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	for _, o := range objects {
		must.Do(t, e.Encode(o))
	}
	must.Do(t, os.WriteFile(file, text.Bytes(), 0o644))
}

// findAdmin looks for the file in which Envoy writes its admin address.
func (g *gateway) findAdmin() bool {
	_ = filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "admin-address.txt" {
			if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
				g.admin = "http://" + strings.TrimSpace(string(text))
			}
		}
		return nil
	})
	return g.admin != ""
}

// page reads a page of Envoy's admin server, "" while it does not answer.
func (g *gateway) page(path string) string {
	text, err := testenv.Get(g.Context(), g.admin+path)
	if err != nil {
		return ""
	}
	return text
}

// stat is the sum of Envoy's counters or gauges with a name that ends so.
func (g *gateway) stat(suffix string) (sum int) {
	for line := range strings.Lines(g.page("/stats?filter=" + suffix + "$")) {
		if _, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			n, err := strconv.Atoi(value)
			if err == nil {
				sum += n
			}
		}
	}
	return sum
}

// found waits until Envoy calls the router: a request gets a hint.
func (g *gateway) found() {
	g.Helper()
	until(g.T, "a request with a hint", func() bool {
		n := lastNumber.Add(1)
		client := newClient()
		defer client.CloseIdleConnections()
		before := g.decisions()
		if _, why := post(client, g.url, n, prompt(n), nil); why != "" {
			g.Fatalf("a request failed: %s", why)
		}
		return g.decisions() > before
	})
}

// ready waits until the router has n ready replicas.
func (g *gateway) ready(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprint(n, " replicas"), func() bool { return g.router.metric(t, "warmroute_fleet_replicas", "state", "ready") == float64(n) })
}

// decisions is how many requests the router has judged.
func (g *gateway) decisions() (sum float64) {
	page, err := testenv.Get(g.Context(), routerAdmin+"/metrics")
	if err != nil {
		return 0
	}
	for _, n := range testenv.Samples(page, "warmroute_decisions_total", "reason") {
		sum += n
	}
	return sum
}

// counted waits until the router has counted the access log's entries about the
// hints of all requests since the from-th, and returns how many were not followed.
func (g *gateway) counted(t *testing.T, from uint64) (missed int) {
	t.Helper()
	to := lastNumber.Load()
	lines := logged(t, g.log, tally{from: from, to: to, sent: int(to - from)})
	hinted, followed, next := hints(lines)
	t.Logf("of %d requests %d had a hint, %d followed it, %d were served by the next of the list", len(lines), hinted, followed, next)
	const outcomes = "warmroute_hint_outcomes_total"
	for outcome, want := range map[string]int{"first": followed, "later": next, "elsewhere": hinted - followed - next} {
		until(t, fmt.Sprint(want, " hints counted as ", outcome), func() bool { return g.router.metric(t, outcomes, "served_by", outcome) == float64(want) })
	}
	missed = hinted - followed
	until(t, "hints not followed counted", func() bool { return g.router.metric(t, "warmroute_served_elsewhere_total", "", "") == float64(missed) })
	return missed
}

// intact is how many bodies arrived as they were sent.
func (g *gateway) intact() (n int64) {
	for _, r := range g.replicas {
		n += r.intact.Load()
	}
	return n
}

// under sends load while do runs, and n requests more; nothing may fail, and
// bodies arrive as they were sent. Answers that had begun are cut only by a
// replica's death.
func (g *gateway) under(t *testing.T, headers map[string]string, n uint64, cuts bool, do func()) []sentence {
	t.Helper()
	l := startLoad(g.url, headers)
	defer l.stop()
	wait := func(n uint64) { // requests, not time
		t.Helper()
		from := lastNumber.Load()
		until(t, fmt.Sprint(n, " more requests"), func() bool { return lastNumber.Load() >= from+n })
	}
	wait(100)
	do()
	wait(n)
	s := l.stop()
	lines := logged(t, g.log, s)
	hinted, followed, next := hints(lines)
	t.Logf("%v; %d hinted, of these %d followed, %d served by the next of the list", s, hinted, followed, next)
	if len(s.failed) > 0 || s.cut > 0 && !cuts {
		t.Errorf("requests failed: %v, cut: %d", s.failed, s.cut)
	}
	for _, r := range g.replicas {
		if n := r.damaged.Load(); n > 0 {
			t.Errorf("%d bodies arrived at %s other than they were sent", n, r.ip)
		}
	}
	return lines
}
