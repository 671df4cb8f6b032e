package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

// TestDoors: a port that other machines reach needs proof of its clients, or the
// configuration says that it does not, which is logged at the start.
func TestDoors(t *testing.T) {
	for _, c := range []struct {
		text   string
		fields string // that are refused
		warned string // settings that are logged, if it is accepted
	}{
		{"{}", "", ""},
		{`admin: {listen: "127.0.0.1:1"}`, "", ""},
		{`admin: {listen: "localhost:1"}`, "", ""},
		{`admin: {listen: ":1"}`, "admin.listen", ""},
		{`admin: {listen: "0.0.0.0:1"}`, "admin.listen", ""},
		{`admin: {listen: "[::]:1"}`, "admin.listen", ""},
		{`admin: {listen: "10.0.0.1:1"}`, "admin.listen", ""},
		{`admin: {listen: "router:1"}`, "admin.listen", ""},
		{`admin: {listen: ":1", token_file: t}`, "", ""},
		{"admin: {listen: \":1\"}\ninsecure: [admin]", "", "insecure=admin"},
		{"admin: {listen: \"127.0.0.1:1\"}\ninsecure: [admin]", "", ""},
		{`health: {listen: ":1"}`, "", ""},
		{`index_service: {listen: ":1"}`, "index_service.listen", ""},
		{`index_service: {listen: ":1", tls: {self_signed: true}}`, "index_service.listen", ""},
		{`index_service: {listen: ":1", token_file: t}`, "", ""},
		{`index_service: {listen: ":1", tls: {cert_file: c, key_file: k, client_ca_file: a}}`, "", ""},
		{"index_service: {listen: \":1\"}\ninsecure: [index_service]", "", "insecure=index_service"},
		{`xds: {listen: ":1"}`, "xds.listen", ""},
		{"xds: {listen: \":1\", tls: {cert_file: c, key_file: k, client_ca_file: a}}\nenvoy: {tls: {enabled: true, cert_file: c, key_file: k}}", "", ""},
		{"xds: {listen: \":1\"}\ninsecure: [xds]", "", "insecure=xds"},
		{`peers: {listen: "0.0.0.0"}`, "peers.listen", ""},
		{`peers: {listen: "127.0.0.1"}`, "", ""},
		{`peers: {listen: ":1", token_file: t}`, "", ""},
		{`peers: {listen: ":1", tls: {enabled: true, cert_file: c, key_file: k, ca_file: a}}`, "", ""},
		{"peers: {listen: \":1\"}\ninsecure: [peers]", "", "insecure=peers"},
		{`peers: {url: "nats://n:4222"}`, "peers.url", ""},
		{`peers: {url: "nats://127.0.0.1:4222"}`, "", ""},
		{`peers: {url: "nats://user:word@n:4222"}`, "", ""},
		{`peers: {url: "nats://n:4222", tls: {enabled: true, ca_file: a}}`, "peers.url", ""},
		{`peers: {url: "nats://n:4222", creds: c}`, "", ""},
		{"admin: {listen: \":1\"}\nxds: {listen: \":2\"}", "admin.listen xds.listen", ""},
		{"admin: {listen: \":1\"}\nxds: {listen: \":2\"}\ninsecure: [xds]", "admin.listen", ""},
	} {
		parsed, err := parseConfig(t, c.text)
		var refused []string
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				_, line, _ = strings.Cut(line, " ")
				field, sentence, _ := strings.Cut(line, ": ")
				if !strings.HasPrefix(sentence, "other machines reach ") {
					t.Errorf("%s: %v", c.text, err)
				}
				refused = append(refused, field)
			}
		}
		if got := strings.Join(refused, " "); got != c.fields {
			t.Errorf("%s: refused %q, want %q", c.text, got, c.fields)
		}
		if err != nil {
			continue
		}
		var log bytes.Buffer
		warnOfDoors(parsed, slog.New(slog.NewTextHandler(&log, nil)))
		if said := log.String(); c.warned == "" && said != "" || !strings.Contains(said, c.warned) || c.warned != "" && strings.Count(said, "level=WARN") != 1 {
			t.Errorf("%s: logged %q, want %q", c.text, said, c.warned)
		}
	}
}

// TestOpenedSectionsHaveDoors: a name that opens nothing is refused.
func TestOpenedSectionsHaveDoors(t *testing.T) {
	if _, err := parseConfig(t, "insecure: [admin, health]"); err == nil || !strings.Contains(err.Error(), `insecure[1]: "health" is none of admin, index_service, peers, xds`) {
		t.Error(err)
	}
}

// TestHostNames: a name that no request can have is refused, not ignored.
func TestHostNames(t *testing.T) {
	for host, ok := range map[string]bool{
		"router.example": true, "10.0.0.1": true, "fd00::1": true, "": false, "router.example:9090": false, "http://router.example": false, "router.example/": false,
	} {
		_, err := parseConfig(t, fmt.Sprintf("admin: {hosts: [%q]}", host))
		if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "admin.hosts[0]: ") {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestDefaultsListenOnLoopback: without a configuration no other machine reaches any
// port, the one for Envoy included.
func TestDefaultsListenOnLoopback(t *testing.T) {
	c := defaultConfig()
	for _, addr := range []string{c.Listen, c.Health.Listen, c.Admin.Listen, c.XDS.Listen, c.IndexService.Listen, c.Peers.Listen} {
		if addr != "" && !strings.HasPrefix(addr, "127.0.0.1:") {
			t.Errorf("%s is not on the loopback", addr)
		}
	}
}

// TestClientsAreToldNothingByDefault: neither why a request went where it went, nor
// where that is.
func TestClientsAreToldNothingByDefault(t *testing.T) {
	told := func(text string) (headers string) {
		c := must.Get(parseConfig(t, "fleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n"+text))(t)
		var b bytes.Buffer
		must.Do(t, envoy.WriteBootstrap(&b, c.envoyOptions()))
		_, headers, _ = strings.Cut(b.String(), "response_headers_to_add:")
		headers, _, _ = strings.Cut(headers, "routes:")
		return headers
	}
	if headers := told(""); headers != "" {
		t.Errorf("clients are told %s", headers)
	}
	if headers := told("filter: {reason_header: true}\nenvoy: {served_header: true}\n"); !strings.Contains(headers, envoy.HeaderReason) || !strings.Contains(headers, envoy.HeaderServed) {
		t.Errorf("where it is turned on, they are told %q", headers)
	}
	if defaultConfig().serverOptions(nil, nil).ReasonHeader {
		t.Error("the router itself sends the reason")
	}
}
