package envoy

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	upstreamhttp "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"warmroute/internal/certs"
	"warmroute/render/testkit/must"
)

// parse reads a bootstrap into Envoy's own types, unknown fields refused.
func parse(t *testing.T, y []byte) *bootstrapv3.Bootstrap {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(y, &tree); err != nil {
		t.Fatalf("not YAML: %v\n%s", err, y)
	}
	j := must.Get(json.Marshal(tree))(t)
	b := new(bootstrapv3.Bootstrap)
	if err := protojson.Unmarshal(j, b); err != nil {
		t.Fatalf("not an Envoy bootstrap: %v\n%s", err, y)
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatalf("Envoy would refuse it: %v", err)
	}
	return b
}

func render(t *testing.T, o Options) string {
	t.Helper()
	var buf bytes.Buffer
	must.Do(t, WriteBootstrap(&buf, o))
	return buf.String()
}

func TestEveryModeIsAValidBootstrap(t *testing.T) {
	for _, mode := range []Mode{Buffered, BufferedPartial, FullDuplex} {
		for _, served := range []bool{false, true} {
			o := Options{Mode: mode, Served: served, ServedHeader: served, UsageShare: new(10), Admin: "127.0.0.1:9901", Replicas: []string{"127.0.0.1:8000", "[::1]:8001"}}
			b := parse(t, []byte(render(t, o)))
			if n := len(b.StaticResources.Clusters[0].LoadAssignment.Endpoints[0].LbEndpoints); n != 2 {
				t.Errorf("%s: %d replicas, want 2", mode, n)
			}
			if got := b.StaticResources.Clusters[0].GetType().String(); got != "STATIC" {
				t.Errorf("%s: cluster type %s", mode, got)
			}
		}
	}
}

func TestStandbyAndTLSAreValid(t *testing.T) {
	b := parse(t, []byte(render(t, Options{
		Replicas: []string{"127.0.0.1:8000"}, Standby: "127.0.0.1:9012",
		TLS: certs.ClientOptions{Enabled: true, CAFile: "ca.pem", CertFile: "cert.pem", KeyFile: "key.pem"},
	})))
	c := b.StaticResources.Clusters[1]
	if len(c.LoadAssignment.Endpoints) != 2 || c.LoadAssignment.Endpoints[1].Priority != 1 || len(c.HealthChecks) != 1 {
		t.Errorf("standby: %v", c)
	}
	if c.TransportSocket.GetName() != "envoy.transport_sockets.tls" {
		t.Errorf("transport socket %v", c.TransportSocket)
	}
	for want, o := range map[string]Options{
		"tls.key_file: is missing beside cert_file":                        {TLS: certs.ClientOptions{Enabled: true, CertFile: "x"}},
		`tls.server_name: is "x", but without ca_file nothing is verified`: {TLS: certs.ClientOptions{Enabled: true, ServerName: "x"}},
		"tls.enabled: is false, but files or a name are given":             {TLS: certs.ClientOptions{CAFile: "x"}},
		`standby: "x" is not host:port`:                                    {Standby: "x"},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSeveralRoutersShareOnePriority(t *testing.T) {
	b := parse(t, []byte(render(t, Options{Replicas: []string{"10.0.0.2:8000"}, ExtProc: []string{"10.0.0.3:9002", "10.0.0.4:9002", "10.0.0.5:9002"}})))
	c := b.StaticResources.Clusters[1]
	if all := c.LoadAssignment.Endpoints; len(all) != 1 || len(all[0].LbEndpoints) != 3 || c.GetType().String() != "STATIC" {
		t.Errorf("%v", c)
	}
	if err := (Options{ExtProc: []string{"10.0.0.3:9002", "x"}}).Validate(); err == nil || !strings.Contains(err.Error(), `extproc[1]: "x" is not host:port`) {
		t.Errorf("%v", err)
	}
}

func TestReplicasByNameAreResolved(t *testing.T) {
	b := parse(t, []byte(render(t, Options{Replicas: []string{"vllm-0:8000", "10.0.0.2:8000"}, ExtProc: []string{"warmroute:9002"}})))
	for _, c := range b.StaticResources.Clusters {
		if c.GetType().String() != "STRICT_DNS" {
			t.Errorf("cluster %s: type %s, want STRICT_DNS", c.Name, c.GetType())
		}
	}
}

// TestAddressesHaveOneSpelling: a hint names a replica as Envoy knows it, however the settings spell it.
func TestAddressesHaveOneSpelling(t *testing.T) {
	b := parse(t, []byte(render(t, Options{Replicas: []string{"[::ffff:10.0.0.1]:8000", "[0:0::1]:8001"}, ExtProc: []string{"[::ffff:10.0.0.2]:9002"}})))
	var got []string
	for _, c := range b.StaticResources.Clusters {
		for _, at := range c.GetLoadAssignment().GetEndpoints() {
			for _, e := range at.GetLbEndpoints() {
				got = append(got, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			}
		}
	}
	if want := []string{"10.0.0.1", "::1", "10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("Envoy dials %q, want %q", got, want)
	}
}

func TestOwnedHeadersAreRemovedAheadOfExtProc(t *testing.T) {
	text := render(t, Options{Replicas: []string{"127.0.0.1:8000"}})
	ext := strings.Index(text, "envoy.filters.http.ext_proc\n")
	for _, h := range Owned {
		at := strings.Index(text, "- remove: "+h)
		if at < 0 || at > ext {
			t.Errorf("%s is not removed ahead of ext_proc", h)
		}
	}
}

// TestUsageIsReadBehindExtProc: the filter that reads usages sees the router's answer before
// it sees the request; a share of 0 leaves it out, and what belongs to it.
func TestUsageIsReadBehindExtProc(t *testing.T) {
	o := Options{Replicas: []string{"127.0.0.1:8000"}, UsageShare: new(1)}
	text := render(t, o)
	if ext, reads := strings.Index(text, "envoy.filters.http.ext_proc\n"), strings.Index(text, "envoy.filters.http.composite"); reads < ext {
		t.Error("usages are read ahead of ext_proc, or not at all")
	}
	for _, share := range []int{-1, 101} {
		if err := (Options{UsageShare: &share}).Validate(); err == nil || !strings.Contains(err.Error(), "usage_share") {
			t.Errorf("a share of %d: %v", share, err)
		}
	}
	o.UsageShare = nil
	for _, name := range []string{"composite", "ai_protocol_manager", MetadataUsage, "actual_"} {
		if !strings.Contains(text, name) || strings.Contains(render(t, o), name) {
			t.Errorf("%s is missing, or there although no usage is read", name)
		}
	}
}

func TestDuplexSaysItsPriceFirst(t *testing.T) {
	text := render(t, Options{Mode: FullDuplex, Replicas: []string{"127.0.0.1:8000"}})
	first, _, _ := strings.Cut(text, "\n")
	if !strings.HasPrefix(first, "# LOSES REQUESTS") {
		t.Errorf("first line is %q", first)
	}
	if !strings.Contains(text, "request_trailer_mode: SEND") {
		t.Error("the mode needs trailers to be sent")
	}
}

// TestNoRetriesAreNone: 0 is not the default.
func TestNoRetriesAreNone(t *testing.T) {
	for want, retries := range map[string]*int{"num_retries: 0\n": new(0), "num_retries: 1\n": new(1), "num_retries: 2\n": nil} {
		if text := render(t, Options{Replicas: []string{"127.0.0.1:8000"}, Retries: retries}); !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestConnections: vLLM closes a connection that was idle for 5 s. A request that meets that
// is reset, and Envoy sends it to a replica that lacks its prefix. A lost machine closes none, and
// nothing that was sent to it is answered, not by its kernel either.
func TestConnections(t *testing.T) {
	for _, s := range []Split{{}, {On: true, Wait: time.Minute}} {
		all := parse(t, []byte(render(t, Options{Replicas: []string{"127.0.0.1:8000"}, Split: s}))).StaticResources.Clusters
		c := all[0]
		var o, router upstreamhttp.HttpProtocolOptions
		err := all[1].TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(&router)
		if k := router.GetExplicitHttpConfig().GetHttp2ProtocolOptions().GetConnectionKeepalive(); err != nil || k.GetInterval() == nil || k.GetInterval().AsDuration()+k.GetTimeout().AsDuration() > 10*time.Second {
			t.Errorf("a lost router is noticed after %v and %v, %v", k.GetInterval(), k.GetTimeout(), err)
		}
		err = c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(&o)
		if idle := o.GetCommonHttpProtocolOptions().GetIdleTimeout().AsDuration(); err != nil || idle <= 0 || idle >= 5*time.Second {
			t.Errorf("idle for %v, %v", idle, err)
		}
		k := c.GetUpstreamConnectionOptions().GetTcpKeepalive()
		quiet := k.GetKeepaliveTime().GetValue() + k.GetKeepaliveProbes().GetValue()*k.GetKeepaliveInterval().GetValue()
		var unread int64 // in milliseconds
		for _, o := range c.GetUpstreamBindConfig().GetSocketOptions() {
			if o.GetLevel() == syscall.IPPROTO_TCP && o.GetName() == 18 { // TCP_USER_TIMEOUT
				unread = o.GetIntValue()
			}
		}
		if quiet != 30 || unread != 30_000 {
			t.Errorf("a lost machine is noticed after %d s, with unread bytes after %d ms", quiet, unread)
		}
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	err := Options{Listen: "nope", Mode: "LOUD", Replicas: []string{"10.0.0.1", "h:0"}, BodyLimit: 1, Retries: new(-1)}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`listen: "nope" is not host:port`,
		`replicas[0]: "10.0.0.1" is not host:port`,
		`replicas[1]: "h:0" has no port between 1 and 65535`,
		`mode: "LOUD" is none of`,
		`body_limit: 1 bytes is below 65536`,
		`retries: -1 is negative`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	for want, o := range map[string]Options{ // Envoy would have no listener
		"body_limit: 2147483648 bytes is above 2147483647":                          {BodyLimit: 1 << 31},
		"retries: 2147483648 is above 2147483647":                                   {Retries: new(1 << 31)},
		"message_timeout: 1h0m1s is above 1h0m0s, Envoy's most":                     {MessageTimeout: time.Hour + time.Second},
		`listen: "localhost:8080" is a name, and Envoy listens at an IP address`:    {Listen: "localhost:8080"},
		`admin: "envoy.example:9901" is a name, and Envoy listens at an IP address`: {Admin: "envoy.example:9901"},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := WriteBootstrap(io.Discard, Options{}); err == nil || !strings.Contains(err.Error(), "replicas: ") {
		t.Errorf("no replicas: %v", err)
	}
}

// TestInstallerInstallsThisVersion holds the installer and Version together.
func TestInstallerInstallsThisVersion(t *testing.T) {
	b := must.Get(os.ReadFile("../scripts/install-envoy.sh"))(t)
	m := regexp.MustCompile(`(?m)^version=(\S+)`).FindSubmatch(b)
	if m == nil || string(m[1]) != Version {
		t.Errorf("scripts/install-envoy.sh installs %q, envoy.Version is %q", m, Version)
	}
}

// TestPrefillElsewhere: what a split request needs is there in the modes that use it, and
// nothing of it in any other configuration.
func TestPrefillElsewhere(t *testing.T) {
	parts := []string{
		"max_message_timeout", KeyWait, "connection_keepalive: {interval: 1s, timeout: 1s}", MetadataSplit, HeaderRetry, "envoy.filters.http.upstream_codec", "selected_host_key",
	}
	for name, s := range map[string]Split{"off": {}, "header": {On: true}, "pull": {On: true, Wait: time.Minute}} {
		text := render(t, Options{Replicas: []string{"127.0.0.1:8000"}, Split: s})
		parse(t, []byte(text))
		for _, part := range parts {
			if want := s.Wait > 0; strings.Contains(text, part) != want {
				t.Errorf("%s: %s is there: %v", name, part, !want)
			}
		}
		for _, h := range OwnedLegs {
			if strings.Contains(text, "- remove: "+h+"\n") != s.On {
				t.Errorf("%s: header %s", name, h)
			}
		}
	}
	for want, o := range map[string]Options{
		"mode: only BUFFERED waits for a prefill on another replica, not FULL_DUPLEX_STREAMED": {Mode: FullDuplex, Split: Split{On: true, Wait: time.Second}},
		"idle_timeout: 1s ends requests before the longest wait for a prefill, 30s":            {IdleTimeout: time.Second, Split: Split{On: true, Wait: 30 * time.Second}},
		"idle_timeout: 1ns ends requests before the longest wait for a decision, 200ms":        {IdleTimeout: 1},
		"idle_timeout: -1s ends requests before the longest wait for a decision, 200ms":        {IdleTimeout: -time.Second},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
