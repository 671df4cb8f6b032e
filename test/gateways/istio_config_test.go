//go:build gateways

package gateways

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

// Istio's names of the Services' clusters, and of the HTTPRoute's rule.
const (
	vllmCluster   = "outbound|8000||vllm.inference.svc.cluster.local"
	routerCluster = "outbound|9002||warmroute.inference.svc.cluster.local"
	vllmRoute     = "inference.vllm.0"
)

// generated is the configuration that `extproc envoy-config` writes for a plain Envoy.
func generated(t *testing.T) (boot object) {
	t.Helper()
	var text bytes.Buffer
	o := envoy.Options{Listen: "127.0.0.1:80", Admin: envoyAdmin, ExtProc: []string{"127.0.0.1:9002"}, Replicas: []string{"127.0.0.1:8000"}, OperatorPaths: true}
	must.Do(t, envoy.WriteBootstrap(&text, o))
	must.Do(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text.String(), "cluster_name: warmroute", fmt.Sprintf("cluster_name: %q", routerCluster))), &boot))
	return boot
}

// has requires that a part of Envoy's dump has every field that was written;
// the dump leaves out fields that are zero.
func has(t *testing.T, what string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case object:
		for key, value := range want {
			has(t, what+"."+key, at(got, key), value)
		}
	case []any:
		for i, value := range want {
			has(t, fmt.Sprintf("%s[%d]", what, i), at(got, i), value)
		}
		if list, ok := got.([]any); !ok || len(list) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	default:
		if got == nil && (want == 0 || want == "NONE") {
			return
		}
		if a, b := scalar(got), scalar(want); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

// scalar makes numbers and durations comparable.
func scalar(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case string:
		if n, err := strconv.ParseFloat(v, 64); err == nil { // numbers of 64 bits are strings
			return n
		}
		if d, err := time.ParseDuration(v); err == nil {
			return d
		}
	}
	return v
}

// named finds the object with a name in a list.
func named(list any, name string) any {
	items, _ := list.([]any)
	for _, item := range items {
		if at(item, "name") == name {
			return item
		}
	}
	return nil
}

// dumped returns the listener, the route of the example and the clusters, by
// name, that Envoy has received.
func (m *mesh) dumped() (listener, route any, clusters map[string]any) {
	var dump object
	if json.Unmarshal([]byte(m.page("/config_dump")), &dump) != nil {
		return nil, nil, nil
	}
	clusters = map[string]any{}
	parts, _ := dump["configs"].([]any)
	list := func(part any, key string) []any { l, _ := at(part, key).([]any); return l }
	for _, part := range parts {
		for _, c := range list(part, "dynamic_active_clusters") {
			clusters[fmt.Sprint(at(c, "cluster", "name"))] = at(c, "cluster")
		}
		for _, l := range list(part, "dynamic_listeners") {
			if at(l, "active_state", "listener", "address", "socket_address", "port_value") == 80.0 {
				listener = at(l, "active_state", "listener")
			}
		}
		for _, r := range list(part, "dynamic_route_configs") {
			for _, host := range list(at(r, "route_config"), "virtual_hosts") {
				if found := named(at(host, "routes"), vllmRoute); found != nil {
					route = found
				}
			}
		}
	}
	return listener, route, clusters
}

// asGenerated requires that Envoy has every setting of the generated
// configuration: that every patch of the example applied.
func (m *mesh) asGenerated(t *testing.T) {
	t.Helper()
	boot := generated(t)
	listener, route, clusters := m.dumped()
	want := at(boot, "static_resources", "listeners", 0)
	has(t, "listener.buffer", at(listener, "per_connection_buffer_limit_bytes"), at(want, "per_connection_buffer_limit_bytes"))
	manager, ours := at(listener, "filter_chains", 0, "filters", 0, "typed_config"), at(want, "filter_chains", 0, "filters", 0, "typed_config")
	has(t, "http2", at(manager, "http2_protocol_options"), at(ours, "http2_protocol_options"))
	filters, _ := at(manager, "http_filters").([]any)
	if len(filters) < 3 {
		t.Fatalf("HTTP filters: %v", filters)
	}
	for i, name := range []string{"envoy.filters.http.header_mutation", "envoy.filters.http.ext_proc", "envoy.filters.http.router"} {
		has(t, name, at(filters, len(filters)-3+i), named(at(ours, "http_filters"), name))
	}
	logs, _ := at(ours, "access_log").([]any)
	log := logs[len(logs)-1]
	// Istio's proxies may be older than the tag's format.
	at(log, "typed_config", "common_config").(object)["custom_tags"] = []any{object{"tag": envoy.TagFirstByte, "literal": object{"value": "-"}}}
	has(t, "access log", named(at(manager, "access_log"), at(log, "name").(string)), log)
	action := at(ours, "route_config", "virtual_hosts", 0, "routes", 0, "route")
	has(t, "route.retry_policy", at(route, "route", "retry_policy"), at(action, "retry_policy"))
	has(t, "route.timeout", at(route, "route", "timeout"), at(action, "timeout"))
	replicas := named(at(boot, "static_resources", "clusters"), "replicas").(object)
	policy := at(replicas, "load_balancing_policy", "policies", 0, "typed_extension_config", "typed_config").(object)
	policy["override_host_sources"] = policy["override_host_sources"].([]any)[:1] // the router sets the header always
	for _, key := range []string{"per_connection_buffer_limit_bytes", "connect_timeout", "load_balancing_policy"} {
		has(t, "vllm."+key, at(clusters[vllmCluster], key), replicas[key])
	}
	router := named(at(boot, "static_resources", "clusters"), "warmroute").(object)
	for _, key := range []string{"connect_timeout", "typed_extension_protocol_options", "common_lb_config", "health_checks", "outlier_detection"} {
		has(t, "warmroute."+key, at(clusters[routerCluster], key), router[key])
	}
}
