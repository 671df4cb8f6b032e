package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"warmroute/internal/config"
)

// TestSettingsThatCannotTakeEffect are refused in one sentence that names the
// file, the line and the field; the settings that they need make them valid.
func TestSettingsThatCannotTakeEffect(t *testing.T) {
	for _, c := range []struct{ text, want, needs string }{
		{"filter: {ready_needs_replica: true, picker: PICKER}", "f:1: filter.ready_needs_replica: is set, but filter.picker is not", "PICKER=true,false"},
		{"xds:\n  listen: ADDR\n  tls: {self_signed: true}", "f:3: xds.tls: is given, but xds.listen is empty (and line 2)", `ADDR=127.0.0.1:1,""`},
		{"index_service: {listen: ADDR, tls: {self_signed: true}}", "f:1: index_service.tls: is given, but index_service.listen is empty", `ADDR=127.0.0.1:1,""`},
		{"index_service: {listen: ADDR, token_file: f}", "f:1: index_service.token_file: is given, but index_service.listen is empty", `ADDR=127.0.0.1:1,""`},
		{"warm_up: {peers: [ADDR], tls: {enabled: true}}", "f:1: warm_up.tls: is given, but warm_up.peers is empty", "ADDR=10.0.0.1:1,"},
		{"kubernetes:\n  pool: NAME\n  replica: {block_size: 16}", "f:3: kubernetes.replica: is given, but kubernetes.pool is empty (and line 2)", `NAME=vllm,""`},
		{"fleet: {replicas: [{address: \"10.0.0.1:1\", tenant: a}]}\nfilter: {tenant_header: NAME}", `f:1: fleet.replicas[0].tenant: is "a", but filter.tenant_header is empty, so that no request has a tenant (and line 2)`, `NAME=x-tenant,""`},
		{"fleet: {dns: [{name: \"vllm:1\", replica: {sidecar: true}}]}\nindex_service: {listen: ADDR}", "f:1: fleet.dns[0].replica.sidecar: is set, but index_service.listen is empty, so that no sidecar can report (and line 2)", `ADDR=127.0.0.1:1,""`},
		{"fleet: {replicas: [{address: \"10.0.0.1:1\", role: prefill}, {address: \"10.0.0.2:1\", role: ROLE}]}", "f:1: fleet.replicas: all have the role prefill, so that none answers a request", "ROLE=both,prefill"},
		{"listen: 127.0.0.1:1\nadmin:\n  listen: ADDR", `f:1: listen and admin.listen: both are "127.0.0.1:1" (and line 3)`, "ADDR=127.0.0.1:2,127.0.0.1:1"},
		{"listen: 127.0.0.1:0\nadmin:\n  listen: 127.0.0.1:0\npeers: {listen: ADDR}", `f:4: xds.listen and peers.listen: both are "127.0.0.1:9004"`, "ADDR=127.0.0.1:9005,127.0.0.1:9004"},
		{"listen: 127.0.0.1:7\nhealth:\n  listen: ADDR", `f:1: listen and health.listen: "127.0.0.1:7" and "0.0.0.0:7" share a port (and line 3)`, "ADDR=127.0.0.2:7,0.0.0.0:7"},
		{"listen: 127.0.0.1:7\nhealth:\n  listen: ADDR", `f:1: listen and health.listen: "127.0.0.1:7" and ":7" share a port (and line 3)`, `ADDR="[::1]:7",":7"`},
		{"listen: 127.0.0.1:7\nadmin:\n  listen: ADDR", `f:1: listen and admin.listen: "127.0.0.1:7" and "localhost:7" share a port (and line 3)`, "ADDR=localhost:8,localhost:7"},
		{"listen: 127.0.0.1:9005\npeers: {listen: ADDR}", `f:1: listen and peers.listen: both are "127.0.0.1:9005" (and line 2)`, "ADDR=127.0.0.2,127.0.0.1"},
		{"peers: {url: ADDR, id: a}", "f:1: peers.id: is given, but listen and url are empty, so that nothing is shared", `ADDR=nats://127.0.0.1:1,""`},
		{"peers: {url: ADDR, fleet: a}", "f:1: peers.fleet: is given, but listen and url are empty, so that nothing is shared", `ADDR=nats://127.0.0.1:1,""`},
		{"peers: {url: ADDR, token_file: a}", "f:1: peers.token_file: is given, but listen and url are empty, so that nothing is shared", `ADDR=nats://127.0.0.1:1,""`},
		{"peers: {url: ADDR, tls: {enabled: true, ca_file: a}}", "f:1: peers.tls: is given, but listen and url are empty, so that nothing is shared", `ADDR=nats://127.0.0.1:1,""`},
		{"fleet: {tls: {enabled: true, CA}}", `f:1: fleet.tls.ca_file: is missing, and no configuration for Envoy is made without it: Envoy knows no authorities of the system, so name a file with them, such as /etc/ssl/certs/ca-certificates.crt; xds: {listen: ""} is for an Envoy that gets its configuration elsewhere`, "CA=ca_file: f,"},
		{"filter: {token_budget: 1s}\nenvoy: {message_timeout: TIME}", "f:1: filter.token_budget: is 1s, but envoy.message_timeout ends the wait for a decision after 900ms (and line 2)", "TIME=2s,900ms"},
		{"filter: {max_body: 300000000}\nenvoy: {mode: MODE}", "f:1: filter.max_body: is 300000000, but a message of Envoy is read up to 268435456 bytes", "MODE=FULL_DUPLEX_STREAMED,BUFFERED"},
		{"filter: {token_budget: TIME}", "f:1: filter.token_budget: is 2h0m0s, but envoy.message_timeout ends the wait for a decision after 1h0m0s", "TIME=1h,2h"},
		{"listen: 127.0.0.1:7\nenvoy: {listen: ADDR}", `f:1: listen and envoy.listen: "127.0.0.1:7" and "0.0.0.0:7" share a port (and line 2)`, "ADDR=0.0.0.0:8,0.0.0.0:7"},
		{"envoy: {listen: 127.0.0.1:7, admin: ADDR}", `f:1: envoy.listen and envoy.admin: both are "127.0.0.1:7"`, "ADDR=127.0.0.2:7,127.0.0.1:7"},
		{"admin: {listen: 127.0.0.1:7}\nenvoy: {admin: ADDR}", `f:1: admin.listen and envoy.admin: both are "127.0.0.1:7" (and line 2)`, "ADDR=127.0.0.1:8,127.0.0.1:7"},
		{"listen: 10.0.0.1:7\nenvoy: {listen: 0.0.0.0:7, extproc: [ADDR]}", `f:2: envoy.extproc[0]: "10.0.0.1" is not host:port`, "ADDR=10.0.0.1:7,10.0.0.1"},
		{"tls: {self_signed: SELF}\nenvoy: {tls: {enabled: true}}", "f:2: envoy.tls.enabled: is true, but tls is not given: Envoy would reach no router", "SELF=true,false"},
		{"tls: {self_signed: true, client_ca_file: a}\nxds: {listen: ADDR}", `f:1: envoy.tls.cert_file: is missing, but tls.client_ca_file requires a certificate of Envoy; xds: {listen: ""} is for an Envoy that gets its configuration elsewhere`, `ADDR="",127.0.0.1:1`},
		{"xds: {tls: {cert_file: a, key_file: b, client_ca_file: CA}}", `f:1: envoy.tls.cert_file: is missing, but xds.tls.client_ca_file requires a certificate of Envoy; xds: {listen: ""} is for an Envoy that gets its configuration elsewhere`, `CA="",c`},
		{"tracing: {endpoint: ADDR, tls: {enabled: true}}", "f:1: tracing.tls: is given, but endpoint is empty, so that there are no traces", `ADDR=h:1,""`},
	} {
		name, values, _ := strings.Cut(c.needs, "=")
		with, without, _ := strings.Cut(values, ",")
		if _, err := parseConfig(t, strings.ReplaceAll(c.text, name, with)); err != nil {
			t.Errorf("%s with %s: %v", c.text, with, err)
		}
		if _, err := parseConfig(t, strings.ReplaceAll(c.text, name, without)); err == nil || err.Error() != c.want {
			t.Errorf("%s with %q: %v\nwant %s", c.text, without, err, c.want)
		}
	}
}

// TestCheckReportsEverythingAtOnce: fields, their dependencies, and a fleet
// without a source, of a file and of standard input.
func TestCheckReportsEverythingAtOnce(t *testing.T) {
	const file = "log: {levl: info}\nfilter:\n  max_streams: none\n  ready_needs_replica: true\npeers: {id: a}\n"
	want := []string{
		`stdin:1: log.levl: is not a known field; did you mean "level"?`,
		`stdin:3: filter.max_streams: "none" is not a whole number of 64 bits`,
		`stdin:4: filter.ready_needs_replica: is set, but filter.picker is not`,
		`stdin:5: peers.id: is given, but listen and url are empty, so that nothing is shared`,
		`stdin: fleet: there is no source of replicas`,
	}
	var out bytes.Buffer
	err := program().Run(t.Context(), []string{"check", "-"}, stdio{In: strings.NewReader(file), Out: &out, Err: &out})
	if err == nil {
		t.Fatal("taken")
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
	if _, err := config.Parse("f", []byte("{}"), defaultConfig(), nil); err != nil {
		t.Errorf("a router that is not served needs no fleet: %v", err)
	}
}

// TestOwnAddressesAreNoReplicas: a replica at one of the router's own addresses, or at its Envoy's,
// is refused, and one with the same port elsewhere is not.
func TestOwnAddressesAreNoReplicas(t *testing.T) {
	for replica, want := range map[string]string{
		"127.0.0.1:8080":          `fleet.replicas[0].address: is envoy.listen, "0.0.0.0:8080", and no vLLM: requests would come back`,
		"[::ffff:127.0.0.1]:9002": `fleet.replicas[0].address: is listen, "127.0.0.1:9002", and no vLLM: requests would come back`,
		"127.0.0.1:9090":          `fleet.replicas[0].address: is admin.listen, "127.0.0.1:9090", and no vLLM: requests would come back`,
		"127.0.0.1:9002":          `fleet.replicas[0].address: is listen, "127.0.0.1:9002", and no vLLM: requests would come back`,
		"127.0.0.1:9901":          `fleet.replicas[0].address: is envoy.admin, "127.0.0.1:9901", and no vLLM: requests would come back`,
		"[::1]:9004":              `fleet.replicas[0].address: is xds.listen, "[::]:9004", and no vLLM: requests would come back`,
		"127.0.0.1:9006":          `fleet.replicas[0].address: is health.listen, ":9006", and no vLLM: requests would come back`,
		"10.0.0.1:8080":           "", "10.0.0.1:9090": "", "127.0.0.1:8000": "",
	} {
		_, err := parseConfig(t, fmt.Sprintf("listen: 127.0.0.1:9002\nadmin: {listen: \"127.0.0.1:9090\"}\nhealth: {listen: \":9006\"}\nxds: {listen: \"[::]:9004\"}\ninsecure: [xds]\nenvoy: {listen: \"0.0.0.0:8080\", admin: \"127.0.0.1:9901\"}\nfleet: {replicas: [{address: %q}]}\n", replica))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", replica, err, want)
		}
	}
}
