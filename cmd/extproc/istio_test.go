package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/internal/testenv/manifest"
)

// picker is Istio's name of the cluster of warmroute's Service.
const picker = "outbound|9002||warmroute.inference.svc.cluster.local"

// patched applies the example's EnvoyFilter to an Envoy bootstrap as Istio would
// to its gateway's listener, route and clusters, which have nothing of ours before.
// What the patches make is what the bootstrap had.
func patched(t *testing.T, boot, filter object) []byte {
	t.Helper()
	warmroute := rename(boot)
	replicas := clustersOf(boot)["replicas"]
	listener := at(boot, "static_resources", "listeners", 0).(object)
	manager := at(listener, "filter_chains", 0, "filters", 0, "typed_config").(object)
	route := at(manager, "route_config", "virtual_hosts", 0, "routes", 0).(object)
	logs, all := manager["access_log"].([]any), manager["http_filters"].([]any)
	reports, router := logs[len(logs)-1], all[len(all)-1]
	// Istio's proxies may be older than the tag's format; the first byte is then the headers'.
	at(reports, "typed_config", "common_config", "grpc_service", "envoy_grpc").(object)["cluster_name"] = picker
	delete(at(reports, "typed_config", "common_config").(object), "custom_tags")
	ours := map[string]any{"a log": reports, "retries": clone(t, at(route, "route", "retry_policy"))}
	take := func(from object, keys ...string) {
		for _, key := range keys {
			ours[fmt.Sprint(from["name"], " ", key)] = from[key]
			delete(from, key)
		}
	}
	take(listener, "per_connection_buffer_limit_bytes")
	take(manager, "http2_protocol_options")
	take(replicas, "per_connection_buffer_limit_bytes", "connect_timeout")
	take(warmroute, "connect_timeout", "typed_extension_protocol_options", "health_checks", "outlier_detection", "common_lb_config")
	delete(replicas, "load_balancing_policy")
	replicas["lb_policy"] = "LEAST_REQUEST" // Istio writes it so
	manager["access_log"], manager["http_filters"] = []any{}, []any{router}
	retries := at(route, "route", "retry_policy").(object)
	maps.DeleteFunc(retries, func(key string, _ any) bool { return key != "retry_host_predicate" })
	retries["retry_on"], retries["host_selection_retry_max_attempts"] = "connect-failure", 5
	for _, p := range at(filter, "spec", "configPatches").([]any) {
		value, match := at(p, "patch", "value").(object), at(p, "match")
		switch at(p, "applyTo") {
		case "LISTENER":
			merge(t, listener, p)
		case "HTTP_ROUTE":
			equal(t, "route", at(match, "routeConfiguration", "vhost", "route", "name"), "inference.vllm.0")
			merge(t, route, p)
		case "CLUSTER":
			switch cluster := at(match, "cluster"); {
			case reflect.DeepEqual(cluster, object{"service": "vllm.inference.svc.cluster.local", "portNumber": 8000}):
				merge(t, replicas, p)
			case reflect.DeepEqual(cluster, object{"service": "warmroute.inference.svc.cluster.local", "portNumber": 9002}):
				merge(t, warmroute, p)
			default:
				t.Errorf("a patch of cluster %v", cluster)
			}
		case "HTTP_FILTER":
			equal(t, "operation", at(p, "patch", "operation"), "INSERT_BEFORE")
			equal(t, "where", at(match, "listener", "filterChain", "filter", "subFilter", "name"), at(router, "name"))
			filters := manager["http_filters"].([]any)
			manager["http_filters"] = slices.Insert(filters, len(filters)-1, any(value))
			if name := at(value, "typed_config", "grpc_service", "envoy_grpc", "cluster_name"); name != nil {
				equal(t, "picker", name, picker)
			}
		case "NETWORK_FILTER":
			mergeManager(t, manager, p)
		default:
			t.Errorf("a patch of %v", at(p, "applyTo"))
		}
	}
	got := map[string]any{"a log": at(manager, "access_log", 0), "retries": retries}
	for _, from := range []object{listener, manager, replicas, warmroute} {
		for key, value := range from {
			if id := fmt.Sprint(from["name"], " ", key); ours[id] != nil {
				got[id] = value
			}
		}
	}
	for what, want := range ours {
		equal(t, what, got[what], want)
	}
	out, err := yaml.Marshal(boot)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// merge applies a patch of an object as Istio does: objects are merged, lists grow.
func merge(t *testing.T, into object, patch any) {
	t.Helper()
	equal(t, "operation", at(patch, "patch", "operation"), "MERGE")
	mergeObject(into, at(patch, "patch", "value").(object))
}

func mergeObject(into, from object) {
	for key, value := range from {
		switch old := into[key].(type) {
		case object:
			mergeObject(old, value.(object))
		case []any:
			into[key] = append(old, value.([]any)...)
		default:
			into[key] = value
		}
	}
}

// clone is a copy that later changes of the original leave alone.
func clone(t *testing.T, v any) (out object) {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err == nil {
		err = yaml.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rename calls the router's cluster as Istio does.
func rename(boot object) (warmroute object) {
	warmroute = clustersOf(boot)["warmroute"]
	warmroute["name"], warmroute["load_assignment"].(object)["cluster_name"] = picker, picker
	return warmroute
}

// mergeManager applies a patch of Envoy's connection manager.
func mergeManager(t *testing.T, manager object, patch any) {
	t.Helper()
	const name = "envoy.filters.network.http_connection_manager"
	equal(t, "filter", at(patch, "match", "listener", "filterChain", "filter", "name"), name)
	equal(t, "its own name", at(patch, "patch", "value", "name"), name)
	equal(t, "type", at(patch, "patch", "value", "typed_config", "@type"), manager["@type"])
	equal(t, "operation", at(patch, "patch", "operation"), "MERGE")
	mergeObject(manager, at(patch, "patch", "value", "typed_config").(object))
}

// istio is an Envoy as an example for Istio configures it, with two replicas, and a
// third that only the router has.
type istio struct {
	envoy.Options
	admin    string // of the router
	stranger string
}

func newIstio(t *testing.T) (i istio) {
	t.Helper()
	for range 3 {
		i.Replicas = append(i.Replicas, testenv.StartSimulator(t, "-prefill-rate", "8000", "-decode-rate", "50").Addr)
	}
	local := testenv.Addresses(t, 4)
	i.Replicas, i.stranger = i.Replicas[:2], i.Replicas[2]
	i.Listen, i.Admin, i.ExtProc, i.admin, i.ServedHeader, i.OperatorPaths = local[0], local[1], []string{local[2]}, local[3], true, true // one route, as the HTTPRoute's
	return i
}

// start starts Envoy.
func (i istio) start(t *testing.T, boot []byte) *testenv.Envoy {
	t.Helper()
	e, err := testenv.StartEnvoy(t.TempDir(), "envoy", boot, i.Listen, i.Admin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// missed sends requests whose hints Envoy cannot follow: that is counted.
func (i istio) missed(t *testing.T, e *testenv.Envoy, filter string) {
	t.Helper()
	defer i.serve(t, filter, i.stranger)()
	waitFor(t, "http://"+i.Admin+"/clusters", picker+"::"+i.ExtProc[0]+"::health_flags::healthy\n")
	for n := range 3 {
		if served := completion(t, e.URL, fmt.Sprintf(`{"model":"sim","max_tokens":4,"prompt":"question %d"}`, n), ""); served == i.stranger {
			t.Errorf("Envoy knows %s", served)
		}
	}
	until(t, "three hints that were not followed are counted", func() bool {
		_, page := get(t, "http://"+i.admin+"/metrics")
		return testenv.Samples(page, "warmroute_hint_outcomes_total", "served_by")["elsewhere"] == 3 && strings.Contains(page, "\nwarmroute_served_elsewhere_total 3\n")
	})
}

// TestExampleIstioPool: Istio's gateway calls a picker by an ext_proc filter of its
// own, which takes no metadata; the example's access log reports to the router
// which hints were not followed.
func TestExampleIstioPool(t *testing.T) {
	i := newIstio(t)
	i.Mode, i.ServedHeader = envoy.FullDuplex, true
	boot := bootstrap(t, i.Options)
	warmroute := rename(boot)
	want := clone(t, warmroute)
	for _, key := range []string{"connect_timeout", "typed_extension_protocol_options", "health_checks", "outlier_detection", "common_lb_config"} {
		delete(warmroute, key)
	}
	manager := at(boot, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config").(object)
	manager["access_log"] = []any{}
	for _, f := range manager["http_filters"].([]any) {
		if at(f, "name") == "envoy.filters.http.ext_proc" {
			config := at(f, "typed_config").(object)
			delete(config, "metadata_options")
			at(config, "grpc_service", "envoy_grpc").(object)["cluster_name"] = picker
		}
	}
	objects := manifest.Objects(t, "../../examples/inference-pool/istio.yaml")
	equal(t, "kind", objects[1]["kind"], "EnvoyFilter")
	for _, p := range at(objects[1], "spec", "configPatches").([]any) {
		switch at(p, "applyTo") {
		case "NETWORK_FILTER":
			mergeManager(t, manager, p)
		case "CLUSTER":
			equal(t, "cluster", at(p, "match", "cluster"), object{"service": "warmroute.inference.svc.cluster.local", "portNumber": 9002})
			merge(t, warmroute, p)
		default:
			t.Errorf("a patch of %v", at(p, "applyTo"))
		}
	}
	want["ignore_health_on_host_removal"] = true // Istio's clusters follow the endpoints
	equal(t, "warmroute's cluster", warmroute, want)
	out, err := yaml.Marshal(boot)
	if err != nil {
		t.Fatal(err)
	}
	i.missed(t, i.start(t, out), "picker: true, always_pick: true")
}

// TestExampleIstio: real Envoy takes the patches; requests get hints, clients' own hints
// are not followed. While the router is away it is left alone and everything is served;
// when it is back, requests get hints again. Outcomes of hints are counted, also of
// hints that were not followed.
func TestExampleIstio(t *testing.T) {
	i := newIstio(t)
	e := i.start(t, patched(t, bootstrap(t, i.Options), manifests(t, "istio")["EnvoyFilter warmroute"]))
	health := picker + "::" + i.ExtProc[0] + "::health_flags::"
	for round := range 2 {
		// Four tokens: a request that ends within 5 ms without a first token looks like
		// a failure.
		body := fmt.Sprintf(`{"model":"sim","max_tokens":4,"prompt":%q}`, strings.Repeat(fmt.Sprint("question ", round, " with a long beginning "), 40))
		stop := i.serve(t, "token_budget: 5s", i.Replicas...)
		waitFor(t, "http://"+i.Admin+"/clusters", health+"healthy\n")
		followed(t, e.URL, "http://"+i.admin, body, i.Replicas)
		until(t, "six hints that were followed are counted", func() bool {
			_, page := get(t, "http://"+i.admin+"/metrics")
			return testenv.Samples(page, "warmroute_hint_outcomes_total", "served_by")["first"] == 6
		})
		stop()
		waitFor(t, "http://"+i.Admin+"/clusters", health+"/failed_active_hc")
		before := testenv.EnvoyStat(t, i.Admin, "cluster."+picker+".upstream_cx_none_healthy")
		for range 6 {
			completion(t, e.URL, body, "")
		}
		if n := testenv.EnvoyStat(t, i.Admin, "cluster."+picker+".upstream_cx_none_healthy") - before; n != 6 {
			t.Errorf("%d of 6 requests left the dead router alone", n)
		}
	}
	i.missed(t, e, "token_budget: 5s")
}

// serve runs the router that Envoy calls, with these replicas, until stop is called.
func (i istio) serve(t *testing.T, filter string, replicas ...string) (stop func()) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "warmroute.yaml")
	text := fmt.Sprintf("listen: %q\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfilter: {%s}\nfleet:\n  replicas:\n", i.ExtProc[0], i.admin, filter)
	for _, r := range replicas {
		text += fmt.Sprintf("  - address: %q\n", r)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- program().Run(ctx, []string{"serve", "-config", config}, stdio{Out: io.Discard, Err: t.Output()})
	}()
	waitFor(t, "http://"+i.admin+"/readyz", "ready")
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// followed sends a prompt six times, each time with one replica or the other as the
// requested one, and requires that the first's replica serves all.
func followed(t *testing.T, gateway, admin, body string, replicas []string) {
	t.Helper()
	served := ""
	for i := range 6 {
		replica := completion(t, gateway, body, replicas[i%2])
		if served != "" && replica != served {
			t.Errorf("request %d was served by %s, the prefix is on %s", i, replica, served)
		}
		served = replica
		waitFor(t, admin+"/metrics", fmt.Sprintf("warmroute_kv_batches_total{rank=\"0\",replica=%q,", replica))
	}
	waitFor(t, admin+"/debug/explain", `"reason":"warm"`)
}
