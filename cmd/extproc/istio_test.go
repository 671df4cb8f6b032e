package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
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
// to its gateway's listener and clusters, which have nothing of ours before.
func patched(t *testing.T, boot, filter object) []byte {
	t.Helper()
	listener := at(boot, "static_resources", "listeners", 0).(object)
	delete(listener, "per_connection_buffer_limit_bytes")
	manager := at(listener, "filter_chains", 0, "filters", 0, "typed_config").(object)
	all := manager["http_filters"].([]any)
	router := all[len(all)-1]
	var before []any
	logs := manager["access_log"].([]any)
	manager["access_log"] = []any{}
	clusters := clustersOf(boot)
	replicas, warmroute := clusters["replicas"], rename(boot)
	at(logs, len(logs)-1, "typed_config", "common_config", "grpc_service", "envoy_grpc").(object)["cluster_name"] = picker
	delete(replicas, "load_balancing_policy")
	delete(replicas, "per_connection_buffer_limit_bytes")
	ours := map[string]any{}
	for _, key := range []string{"health_checks", "outlier_detection", "common_lb_config"} {
		ours[key] = warmroute[key]
		delete(warmroute, key)
	}
	replicas["lb_policy"] = "LEAST_REQUEST" // Istio writes it so
	patches := at(filter, "spec", "configPatches").([]any)
	for _, p := range patches {
		value := at(p, "patch", "value").(object)
		merge := func(into object) {
			equal(t, "operation", at(p, "patch", "operation"), "MERGE")
			for k, v := range value {
				into[k] = v
			}
		}
		switch at(p, "applyTo") {
		case "LISTENER":
			merge(listener)
		case "CLUSTER":
			switch cluster := at(p, "match", "cluster"); {
			case reflect.DeepEqual(cluster, object{"service": "vllm.inference.svc.cluster.local", "portNumber": 8000}):
				merge(replicas)
			case reflect.DeepEqual(cluster, object{"service": "warmroute.inference.svc.cluster.local", "portNumber": 9002}):
				merge(warmroute)
			default:
				t.Errorf("a patch of cluster %v", cluster)
			}
		case "HTTP_FILTER":
			equal(t, "operation", at(p, "patch", "operation"), "INSERT_BEFORE")
			equal(t, "where", at(p, "match", "listener", "filterChain", "filter", "subFilter", "name"), at(router, "name"))
			before = append(before, value)
			if name := at(value, "typed_config", "grpc_service", "envoy_grpc", "cluster_name"); name != nil {
				equal(t, "picker", name, picker)
			}
		case "NETWORK_FILTER":
			mergeManager(t, manager, p)
		default:
			t.Errorf("a patch of %v", at(p, "applyTo"))
		}
	}
	manager["http_filters"] = append(before, router)
	for key, want := range ours {
		equal(t, key, warmroute[key], want)
	}
	equal(t, "access log", manager["access_log"], logs[len(logs)-1:])
	out, err := yaml.Marshal(boot)
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

// mergeManager applies a patch of Envoy's connection manager: lists grow.
func mergeManager(t *testing.T, manager object, patch any) {
	t.Helper()
	equal(t, "operation", at(patch, "patch", "operation"), "MERGE")
	const name = "envoy.filters.network.http_connection_manager"
	equal(t, "filter", at(patch, "match", "listener", "filterChain", "filter", "name"), name)
	value := at(patch, "patch", "value").(object)
	equal(t, "its own name", value["name"], name)
	config := maps.Clone(value["typed_config"].(object))
	equal(t, "type", config["@type"], manager["@type"])
	manager["access_log"] = append(manager["access_log"].([]any), config["access_log"].([]any)...)
	delete(config, "@type")
	delete(config, "access_log")
	equal(t, "what else is merged", config, object{})
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
	i.Listen, i.Admin, i.ExtProc, i.admin, i.ServedHeader = local[0], local[1], []string{local[2]}, local[3], true
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
	for _, metric := range []string{`warmroute_hint_outcomes_total{served_by="elsewhere"} 3`, "warmroute_served_elsewhere_total 3"} {
		waitFor(t, "http://"+i.admin+"/metrics", metric)
	}
}

// TestExampleIstioPool: Istio's gateway calls a picker by an ext_proc filter of its
// own, which takes no metadata; the example's access log reports to the router
// which hints were not followed.
func TestExampleIstioPool(t *testing.T) {
	i := newIstio(t)
	i.Mode, i.ServedHeader = envoy.FullDuplex, true
	boot := bootstrap(t, i.Options)
	rename(boot)
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
		equal(t, "a patch of", at(p, "applyTo"), "NETWORK_FILTER")
		mergeManager(t, manager, p)
	}
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
		waitFor(t, "http://"+i.admin+"/metrics", `warmroute_hint_outcomes_total{served_by="first"} 6`)
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
		waitFor(t, admin+"/metrics", fmt.Sprintf("warmroute_kv_batches_total{rank=\"0\",replica=%q}", replica))
	}
	waitFor(t, admin+"/debug/explain", `"reason":"warm"`)
}
