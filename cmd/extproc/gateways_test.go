package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/internal/testenv/manifest"
)

// gatewayLimits are Envoy Gateway's circuit breakers.
type gatewayLimits struct {
	MaxConnections      int `yaml:"maxConnections"`
	MaxPendingRequests  int `yaml:"maxPendingRequests"`
	MaxParallelRequests int `yaml:"maxParallelRequests"`
	MaxParallelRetries  int `yaml:"maxParallelRetries"`
}

// envoy returns the limits as Envoy Gateway writes them for Envoy.
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

// gatewayConnections is Envoy Gateway's configuration of connections, to clients
// or to a backend.
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

// check fails unless h equals the health checks of Envoy's cluster.
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
// types and are equivalent to the tested Envoy configuration.
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
	for _, example := range []string{"envoy-gateway", "istio", "inference-pool"} {
		for name, o := range manifests(t, example) {
			if strings.HasPrefix(name, "HTTPRoute ") {
				equal(t, "headers that vLLM obeys in "+example, at(o, "spec", "rules", 0, "filters", 0, "requestHeaderModifier", "remove"), []any{envoy.EngineHeaders[0], envoy.EngineHeaders[1]})
			}
		}
	}
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

// TestExampleEnvoyGatewayPatch: settings that the policies cannot express are
// patched to the values of the tested Envoy configuration.
func TestExampleEnvoyGatewayPatch(t *testing.T) {
	boot := bootstrap(t, envoy.Options{Replicas: []string{"127.0.0.1:8000"}, OperatorPaths: true})
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

// bootstrap returns the output of `extproc envoy-config`.
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
