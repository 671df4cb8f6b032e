package main

import (
	"bytes"
	"strings"
	"testing"

	"warmroute/internal/config"
)

// TestSettingsThatCannotTakeEffect are refused in one sentence that names the
// field and its line; what they need makes them valid.
func TestSettingsThatCannotTakeEffect(t *testing.T) {
	for _, c := range []struct{ text, want, needs string }{
		{"filter: {ready_needs_replica: true, picker: PICKER}", "filter.ready_needs_replica: is set, but filter.picker is not (line 1)", "PICKER=true,false"},
		{"filter:\n  always_pick: PICK\n  ranked: 5", "filter.ranked: is 5, but filter.always_pick names one replica (lines 2 and 3)", "PICK=false,true"},
		{"xds:\n  listen: ADDR\n  tls: {self_signed: true}", "xds.tls: is given, but xds.listen is empty (lines 2 and 3)", `ADDR=127.0.0.1:1,""`},
		{"index_service: {listen: ADDR, tls: {self_signed: true}}", "index_service.tls: is given, but index_service.listen is empty (line 1)", `ADDR=127.0.0.1:1,""`},
		{"index_service: {listen: ADDR, token_file: f}", "index_service.token_file: is given, but index_service.listen is empty (line 1)", `ADDR=127.0.0.1:1,""`},
		{"warm_up: {peers: [ADDR], tls: {enabled: true}}", "warm_up.tls: is given, but warm_up.peers is empty (line 1)", "ADDR=10.0.0.1:1,"},
		{"warm_up: {peers: [ADDR], token_file: f}", "warm_up.token_file: is given, but warm_up.peers is empty (line 1)", "ADDR=127.0.0.1:1,"},
		{"kubernetes:\n  pool: NAME\n  replica: {block_size: 16}", "kubernetes.replica: is given, but kubernetes.pool is empty (lines 2 and 3)", `NAME=vllm,""`},
		{"fleet: {replicas: [{address: \"10.0.0.1:1\", tenant: a}]}\nfilter: {tenant_header: NAME}", `fleet.replicas[0].tenant: is "a", but filter.tenant_header is empty, so that no request has a tenant (lines 1 and 2)`, `NAME=x-tenant,""`},
		{"fleet: {dns: [{name: \"vllm:1\", replica: {sidecar: true}}]}\nindex_service: {listen: ADDR}", "fleet.dns[0].replica.sidecar: is set, but index_service.listen is empty, so that no sidecar can report (lines 1 and 2)", `ADDR=127.0.0.1:1,""`},
		{"listen: 127.0.0.1:1\nadmin:\n  listen: ADDR", `listen and admin.listen: both are "127.0.0.1:1" (lines 1 and 3)`, "ADDR=127.0.0.1:2,127.0.0.1:1"},
		{"listen: 127.0.0.1:0\nadmin:\n  listen: 127.0.0.1:0\npeers: {listen: ADDR}", `xds.listen and peers.listen: both are "127.0.0.1:9004" (line 4)`, "ADDR=127.0.0.1:9005,127.0.0.1:9004"},
		{"peers: {url: ADDR, id: a}", "peers.id: is given, but listen and url are empty, so that nothing is shared (line 1)", `ADDR=nats://h:1,""`},
		{"peers: {url: ADDR, fleet: a}", "peers.fleet: is given, but listen and url are empty, so that nothing is shared (line 1)", `ADDR=nats://h:1,""`},
		{"peers: {url: ADDR, token_file: a}", "peers.token_file: is given, but listen and url are empty, so that nothing is shared (line 1)", `ADDR=nats://h:1,""`},
		{"peers: {url: ADDR, tls: {ca_file: a}}", "peers.tls: is given, but listen and url are empty, so that nothing is shared (line 1)", `ADDR=nats://h:1,""`},
		{"tracing: {endpoint: ADDR, tls: {enabled: true}}", "tracing.tls: is given, but endpoint is empty, so that there are no traces (line 1)", `ADDR=h:1,""`},
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

// TestCheckReportsEverythingAtOnce: fields, what they mean together, and a fleet
// without a source, of a file and of standard input.
func TestCheckReportsEverythingAtOnce(t *testing.T) {
	const file = "log: {levl: info}\nfilter:\n  ranked: none\n  ready_needs_replica: true\npeers: {id: a}\n"
	want := []string{
		`log.levl: is not a known field; did you mean "level"? (line 1)`,
		`filter.ranked: "none" is not a whole number of 64 bits (line 3)`,
		`fleet: there is no source of replicas`,
		`filter.ready_needs_replica: is set, but filter.picker is not (line 4)`,
		`peers.id: is given, but listen and url are empty, so that nothing is shared (line 5)`,
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"check", "-"}, stdio{in: strings.NewReader(file), out: &out, err: &out})
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
	if _, err := config.Parse(nil, defaultConfig(), nil); err != nil {
		t.Errorf("a router that is not served needs no fleet: %v", err)
	}
}
