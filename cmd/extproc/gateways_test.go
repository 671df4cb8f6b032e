package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/internal/vllmsim"
	"warmroute/test/manifest"
	"warmroute/test/testenv"
)

// gatewayLimits are Envoy Gateway's circuit breakers.
type gatewayLimits struct {
	MaxConnections      int `yaml:"maxConnections"`
	MaxPendingRequests  int `yaml:"maxPendingRequests"`
	MaxParallelRequests int `yaml:"maxParallelRequests"`
	MaxParallelRetries  int `yaml:"maxParallelRetries"`
}

// envoy is what Envoy Gateway makes of them.
func (l gatewayLimits) envoy() object {
	return object{"thresholds": []any{object{
		"max_connections": l.MaxConnections, "max_pending_requests": l.MaxPendingRequests,
		"max_requests": l.MaxParallelRequests, "max_retries": l.MaxParallelRetries,
	}}}
}

// gatewayHealth is Envoy Gateway's health checks of a backend.
type gatewayHealth struct {
	PanicThreshold *int `yaml:"panicThreshold"`
	Active         struct {
		Type               string
		GRPC               struct{ Service string } `yaml:"grpc"`
		Interval, Timeout  time.Duration
		UnhealthyThreshold int `yaml:"unhealthyThreshold"`
		HealthyThreshold   int `yaml:"healthyThreshold"`
	}
	Passive struct {
		Split    bool          `yaml:"splitExternalLocalOriginErrors"`
		Local    int           `yaml:"consecutiveLocalOriginFailures"`
		Server   *int          `yaml:"consecutive5XxErrors"`
		Gateway  *int          `yaml:"consecutiveGatewayErrors"`
		Base     time.Duration `yaml:"baseEjectionTime"`
		Interval time.Duration // between looks at who has been left alone for long enough
		MostHost int           `yaml:"maxEjectionPercent"`
	}
}

// gatewayConnections is what Envoy Gateway says of connections, to clients or to
// a backend.
type gatewayConnections struct {
	Timeout struct {
		TCP struct {
			Connect time.Duration `yaml:"connectTimeout"`
		} `yaml:"tcp"`
	}
	Connection struct {
		BufferLimit string `yaml:"bufferLimit"`
	}
	HTTP2 struct {
		Stream string `yaml:"initialStreamWindowSize"`
		Whole  string `yaml:"initialConnectionWindowSize"`
	} `yaml:"http2"`
}

// mebibytes is n as a quantity of Kubernetes.
func mebibytes(n any) string {
	if n == nil {
		n = 1 << 20 // Envoy's default where it is a buffer's limit
	}
	return fmt.Sprintf("%dMi", n.(int)>>20)
}

// check holds h to the same as Envoy's cluster says.
func (h gatewayHealth) check(t *testing.T, cluster object) {
	t.Helper()
	duration := func(v any) time.Duration {
		d, err := time.ParseDuration(fmt.Sprint(v))
		if err != nil {
			t.Errorf("duration %v: %v", v, err)
		}
		return d
	}
	never := 0 // Envoy counts from 1
	equal(t, "panic threshold", h.PanicThreshold, &never)
	equal(t, "Envoy's panic threshold", at(cluster, "common_lb_config", "healthy_panic_threshold", "value"), never)
	check, ejection := at(cluster, "health_checks", 0), at(cluster, "outlier_detection")
	equal(t, "health check", h.Active.Type, "GRPC")
	equal(t, "health check service", h.Active.GRPC.Service, at(check, "grpc_health_check", "service_name"))
	equal(t, "health check interval", h.Active.Interval, duration(at(check, "interval")))
	equal(t, "health check timeout", h.Active.Timeout, duration(at(check, "timeout")))
	equal(t, "unhealthy threshold", h.Active.UnhealthyThreshold, at(check, "unhealthy_threshold"))
	equal(t, "healthy threshold", h.Active.HealthyThreshold, at(check, "healthy_threshold"))
	equal(t, "local errors apart", h.Passive.Split, at(ejection, "split_external_local_origin_errors"))
	equal(t, "local errors", h.Passive.Local, at(ejection, "consecutive_local_origin_failure"))
	equal(t, "5xx", h.Passive.Server, &never)
	equal(t, "gateway errors", h.Passive.Gateway, &never)
	equal(t, "ejection time", h.Passive.Base, duration(at(ejection, "base_ejection_time")))
	equal(t, "ejected at most", h.Passive.MostHost, at(ejection, "max_ejection_percent"))
}

// clustersOf reads the clusters of a bootstrap, by name.
func clustersOf(boot object) map[string]object {
	out := map[string]object{}
	for _, c := range at(boot, "static_resources", "clusters").([]any) {
		out[fmt.Sprint(at(c, "name"))] = c.(object)
	}
	return out
}

// TestExampleEnvoyGateway: the policies hold only fields of Envoy Gateway's
// types and say what the tested Envoy configuration says.
func TestExampleEnvoyGateway(t *testing.T) {
	type target struct{ Group, Kind, Name string }
	type policy struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name, Namespace string }
		Spec       struct {
			TargetRefs []target `yaml:"targetRefs"`
			Headers    struct {
				EarlyRequestHeaders struct{ Remove []string } `yaml:"earlyRequestHeaders"`
			}
			gatewayConnections `yaml:",inline"`
			ExtProc            []struct {
				BackendRefs []struct {
					Name string
					Port int
				} `yaml:"backendRefs"`
				BackendSettings struct {
					CircuitBreaker     gatewayLimits `yaml:"circuitBreaker"`
					HealthCheck        gatewayHealth `yaml:"healthCheck"`
					gatewayConnections `yaml:",inline"`
				} `yaml:"backendSettings"`
				FailOpen       bool          `yaml:"failOpen"`
				MessageTimeout time.Duration `yaml:"messageTimeout"`
				ProcessingMode struct {
					Request struct{ Body string }
				} `yaml:"processingMode"`
			} `yaml:"extProc"`
			LoadBalancer struct {
				Type             string
				EndpointOverride struct {
					ExtractFrom []struct{ Header string } `yaml:"extractFrom"`
				} `yaml:"endpointOverride"`
			} `yaml:"loadBalancer"`
			CircuitBreaker gatewayLimits `yaml:"circuitBreaker"`
			HealthCheck    gatewayHealth `yaml:"healthCheck"`
			Retry          struct {
				NumRetries int                         `yaml:"numRetries"`
				RetryOn    struct{ Triggers []string } `yaml:"retryOn"`
				PerRetry   struct {
					BackOff struct {
						Base time.Duration `yaml:"baseInterval"`
						Max  time.Duration `yaml:"maxInterval"`
					} `yaml:"backOff"`
				} `yaml:"perRetry"`
			}
		}
	}
	objects := manifests(t, "envoy-gateway")
	policies := map[string]policy{}
	manifest.Decode(t, "../../examples/envoy-gateway/policies.yaml", func(d *yaml.Decoder) error {
		var p policy
		d.KnownFields(true)
		err := d.Decode(&p)
		if err == nil {
			policies[p.Kind] = p
			equal(t, "version", p.APIVersion, "gateway.envoyproxy.io/v1alpha1")
			to := p.Spec.TargetRefs[0]
			equal(t, p.Kind+" target", objects[to.Kind+" "+to.Name] != nil, true)
		}
		return err
	})
	client, ext, backend := policies["ClientTrafficPolicy"].Spec, policies["EnvoyExtensionPolicy"].Spec, policies["BackendTrafficPolicy"].Spec
	plain := envoy.Options{}.WithDefaults()
	clusters := clustersOf(bootstrap(t, envoy.Options{Replicas: []string{"127.0.0.1:8000"}}))
	ext.ExtProc[0].BackendSettings.HealthCheck.check(t, clusters["warmroute"])
	equal(t, "limits of warmroute", ext.ExtProc[0].BackendSettings.CircuitBreaker.envoy(), clusters["warmroute"]["circuit_breakers"])
	equal(t, "limits of the replicas", backend.CircuitBreaker.envoy(), clusters["replicas"]["circuit_breakers"])
	equal(t, "removed headers", client.Headers.EarlyRequestHeaders.Remove, envoy.Owned[:])
	equal(t, "buffer", client.Connection.BufferLimit, mebibytes(plain.BodyLimit))
	equal(t, "window of a request", client.HTTP2.Stream, mebibytes(plain.BodyLimit))
	equal(t, "window of a client", client.HTTP2.Whole, mebibytes(plain.BodyLimit)) // or it would be the smaller
	router := ext.ExtProc[0].BackendSettings
	for what, pair := range map[string]struct {
		cluster object
		gatewayConnections
	}{"warmroute": {clusters["warmroute"], router.gatewayConnections}, "the replicas": {clusters["replicas"], backend.gatewayConnections}} {
		connect, err := time.ParseDuration(fmt.Sprint(pair.cluster["connect_timeout"]))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "time to connect to "+what, pair.Timeout.TCP.Connect, connect)
		equal(t, "buffer towards "+what, pair.Connection.BufferLimit, mebibytes(pair.cluster["per_connection_buffer_limit_bytes"]))
	}
	http2 := at(clusters["warmroute"], "typed_extension_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config", "http2_protocol_options")
	equal(t, "window of a stream to warmroute", router.HTTP2.Stream, mebibytes(at(http2, "initial_stream_window_size")))
	equal(t, "window of a connection to warmroute", router.HTTP2.Whole, mebibytes(at(http2, "initial_connection_window_size")))
	equal(t, "fail open", ext.ExtProc[0].FailOpen, true)
	equal(t, "timeout", ext.ExtProc[0].MessageTimeout, plain.MessageTimeout)
	equal(t, "mode", strings.ToUpper(ext.ExtProc[0].ProcessingMode.Request.Body), string(plain.Mode))
	service := objects["Service "+ext.ExtProc[0].BackendRefs[0].Name]
	equal(t, "port", at(service, "spec", "ports", 0, "port"), ext.ExtProc[0].BackendRefs[0].Port)
	equal(t, "balancer", backend.LoadBalancer.Type, "LeastRequest")
	equal(t, "header", backend.LoadBalancer.EndpointOverride.ExtractFrom[0].Header, envoy.HeaderDestination)
	equal(t, "retries", backend.Retry.RetryOn.Triggers, []string{"connect-failure", "reset", "refused-stream"})
	equal(t, "number of retries", backend.Retry.NumRetries, plain.Retries+2) // test/gateways shows why
	equal(t, "delay of a retry", backend.Retry.PerRetry.BackOff.Base, time.Millisecond)
	equal(t, "longest delay of a retry", backend.Retry.PerRetry.BackOff.Max, 10*time.Millisecond)
	equal(t, "replicas left alone at most", backend.HealthCheck.Passive.MostHost, 50)
	equal(t, "for", backend.HealthCheck.Passive.Base, time.Second)
	equal(t, "after failed connections", backend.HealthCheck.Passive.Local, 1)
}

// TestExampleEnvoyGatewayPatch: what the policies cannot say is patched to what
// the tested Envoy configuration says.
func TestExampleEnvoyGatewayPatch(t *testing.T) {
	boot := bootstrap(t, envoy.Options{Replicas: []string{"127.0.0.1:8000"}})
	warmroute := clustersOf(boot)["warmroute"]
	retry := at(boot, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config", "route_config", "virtual_hosts", 0, "routes", 0, "route", "retry_policy")
	want := map[string]any{
		"/health_checks/0/no_traffic_interval":  at(warmroute, "health_checks", 0, "no_traffic_interval"),
		"/health_checks/0/unhealthy_interval":   at(warmroute, "health_checks", 0, "unhealthy_interval"),
		"/common_lb_config/update_merge_window": at(warmroute, "common_lb_config", "update_merge_window"),
		"/outlier_detection/max_ejection_time":  at(warmroute, "outlier_detection", "max_ejection_time"),
		"host_selection_retry_max_attempts":     at(retry, "host_selection_retry_max_attempts"),
	}
	patches := at(manifests(t, "envoy-gateway")["EnvoyPatchPolicy warmroute"], "spec", "jsonPatches").([]any)
	for _, p := range patches {
		path := fmt.Sprint(at(p, "operation", "path"))
		equal(t, path, at(p, "operation", "value"), want[path])
		delete(want, path) // the second of one path would be compared with nothing
		if path == "/outlier_detection/max_ejection_time" {
			want[path] = at(warmroute, "outlier_detection", "max_ejection_time")
		}
	}
	delete(want, "/outlier_detection/max_ejection_time")
	equal(t, "left out", want, map[string]any{})
}

// bootstrap is what `extproc envoy-config` prints.
func bootstrap(t *testing.T, o envoy.Options) object {
	t.Helper()
	var raw bytes.Buffer
	if err := envoy.WriteBootstrap(&raw, o); err != nil {
		t.Fatal(err)
	}
	var boot object
	if err := yaml.Unmarshal(raw.Bytes(), &boot); err != nil {
		t.Fatal(err)
	}
	return boot
}

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
	clusters := clustersOf(boot)
	replicas, picker := clusters["replicas"], clusters["warmroute"]
	delete(replicas, "load_balancing_policy")
	delete(replicas, "per_connection_buffer_limit_bytes")
	ours := map[string]any{}
	for _, key := range []string{"health_checks", "outlier_detection", "common_lb_config"} {
		ours[key] = picker[key]
		delete(picker, key)
	}
	replicas["lb_policy"] = "LEAST_REQUEST" // what Istio writes
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
				merge(picker)
			default:
				t.Errorf("a patch of cluster %v", cluster)
			}
		case "HTTP_FILTER":
			equal(t, "operation", at(p, "patch", "operation"), "INSERT_BEFORE")
			equal(t, "where", at(p, "match", "listener", "filterChain", "filter", "subFilter", "name"), at(router, "name"))
			before = append(before, value)
			if name := at(value, "typed_config", "grpc_service", "envoy_grpc", "cluster_name"); name != nil {
				equal(t, "picker", name, "outbound|9002||warmroute.inference.svc.cluster.local")
				picker["name"], picker["load_assignment"].(object)["cluster_name"] = name, name
			}
		default:
			t.Errorf("a patch of %v", at(p, "applyTo"))
		}
	}
	manager["http_filters"] = append(before, router)
	for key, want := range ours {
		equal(t, key, picker[key], want)
	}
	out, err := yaml.Marshal(boot)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestExampleIstio: real Envoy takes the patches; requests get hints, clients'
// own hints are not followed. While the router is away it is left alone and
// everything is served; when it is back, requests get hints again.
func TestExampleIstio(t *testing.T) {
	var o envoy.Options
	for range 2 {
		sim, err := vllmsim.New(vllmsim.Options{Events: "127.0.0.1:0", Replay: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		background(t, sim.Run)
		o.Replicas = append(o.Replicas, sim.Addr())
	}
	local := testenv.Addresses(t, 4)
	o.Listen, o.Admin, o.ExtProc, o.ServedHeader = local[0], local[1], []string{local[2]}, true
	e, err := testenv.StartEnvoy(t.TempDir(), "envoy", patched(t, bootstrap(t, o), manifests(t, "istio")["EnvoyFilter warmroute"]), o.Listen, o.Admin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	const picker = "outbound|9002||warmroute.inference.svc.cluster.local"
	health := picker + "::" + o.ExtProc[0] + "::health_flags::"
	for round := range 2 {
		// Four tokens: what ends within 5 ms without a first token looks like a failure.
		body := fmt.Sprintf(`{"model":"sim","max_tokens":4,"prompt":%q}`, strings.Repeat(fmt.Sprint("question ", round, " with a long beginning "), 40))
		stop := serveBehind(t, local[3], o)
		waitFor(t, "http://"+o.Admin+"/clusters", health+"healthy\n")
		followed(t, e.URL, "http://"+local[3], body, o.Replicas)
		stop()
		waitFor(t, "http://"+o.Admin+"/clusters", health+"/failed_active_hc")
		before := stat(t, o.Admin, "cluster."+picker+".upstream_cx_none_healthy")
		for range 6 {
			completion(t, e.URL, body, "")
		}
		if n := stat(t, o.Admin, "cluster."+picker+".upstream_cx_none_healthy") - before; n != 6 {
			t.Errorf("%d of 6 requests left the dead router alone", n)
		}
	}
}

// serveBehind runs the router that Envoy asks until stop is called.
func serveBehind(t *testing.T, admin string, o envoy.Options) (stop func()) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "warmroute.yaml")
	text := fmt.Sprintf("listen: %q\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfilter: {token_budget: 5s}\nfleet: {replicas: [{address: %q}, {address: %q}]}\n",
		o.ExtProc[0], admin, o.Replicas[0], o.Replicas[1])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "-config", config}, stdio{out: io.Discard, err: t.Output()})
	}()
	waitFor(t, "http://"+admin+"/readyz", "ready")
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// followed sends a prompt six times, each time asking for one replica or the
// other, and wants all served where the first was.
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

// stat is a counter of Envoy.
func stat(t *testing.T, admin, name string) int {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/stats?usedonly")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return n
		}
	}
	return 0
}
