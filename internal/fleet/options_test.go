package fleet

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"warmroute/internal/config"
	"warmroute/render/testkit/must"
)

type file struct {
	Fleet Options `yaml:"fleet"`
}

func parse(text string) (Options, error) {
	f, err := config.Parse("f", []byte(text), file{DefaultOptions()}, func(string) (string, bool) { return "", false })
	return f.Fleet, err
}

// Every mistake is named with its field and value, all at once.
func TestOptionsReportEveryProblem(t *testing.T) {
	_, err := parse(`
fleet:
  scrape_interval: 10ms
  dead_after: 15ms
  replicas:
  - address: 10.0.0.1:8000
    block_size: -1
  - {}
  - address: "10.0.0.1"
  - address: "fd00::1"
  - address: "vllm-a:8000"
  - address: "10.0.0.1:8000"
  - address: "[::ffff:10.0.0.1]:8000"
  - address: "10.0.0.1:0"
  - address: "10.0.0:80"
  - address: "0.0.0.0:80"
  - address: "[fe80::1%eth0]:80"
  - address: "a:99999"
  - address: 10.0.0.2:8000
    models: [{}, {id: a}, {id: a, lora: true}, {id: b, lora_path: /x}]
    events: [{rank: -1}, {endpoint: "udp://x:1"}, {endpoint: "tcp://*"}, {rank: 3, endpoint: "tcp://*:x", replay_endpoint: nonsense}]
    role: encode
    kv_connector: "Nixl Connector"
  - {address: 10.0.0.3:8000, events: [{endpoint: "tcp://*:1"}, {rank: 1, endpoint: "tcp://*:1", topic: a}, {rank: 2, endpoint: "tcp://*:2", replay_endpoint: "tcp://*:2"}]}
  - {address: 10.0.0.4:8000, events: [{endpoint: "tcp://*:1"}, {rank: 1, endpoint: "tcp://10.0.0.3:1"}, {rank: 2, endpoint: "tcp://10.0.0.3:1", topic: a}]}
  - {address: 10.0.0.5:8000, sidecar: true, events: [{endpoint: "tcp://*:5"}]}
  - {address: 10.0.0.6:8000, no_events: true, sidecar: true}
  dns:
  - {name: "vllm"}
  - {name: "_http._tcp.vllm:80", replica: {address: "1.1.1.1:1"}}
  tls: {ca_file: /x, cert_file: c}
  event_hosts: [10.0.0.0/8, "fd00::1", pods.example, 10.0.0.0/99, "a b"]
`)
	if err == nil {
		t.Fatal("accepted")
	}
	want := []string{
		`f:3: fleet.scrape_interval: 10ms is shorter than 50ms, which costs more than it tells`,
		`f:4: fleet.dead_after: 15ms is less than two times scrape_interval (10ms): one late answer would drop a replica (and line 3)`,
		`f:7: fleet.replicas[0].block_size: -1 is not from 1 to 1048576 tokens`,
		`f:8: fleet.replicas[1].address: is missing`,
		`f:9: fleet.replicas[2].address: "10.0.0.1" has no port`,
		`f:10: fleet.replicas[3].address: "fd00::1" has no port; an IPv6 address is written like "[fd00::1]:8000"`,
		`f:11: fleet.replicas[4].address: "vllm-a:8000" is a name, not an IP address; list it under dns`,
		`f:12: fleet.replicas[5].address: "10.0.0.1:8000" is the same as replicas[0].address (and line 6)`,
		`f:13: fleet.replicas[6].address: "[::ffff:10.0.0.1]:8000" is the same as replicas[0].address (and line 6)`,
		`f:14: fleet.replicas[7].address: "10.0.0.1:0" has port 0`,
		`f:15: fleet.replicas[8].address: "10.0.0:80" is not of the form ip:port`,
		`f:16: fleet.replicas[9].address: "0.0.0.0:80" is not the address of one host`,
		`f:17: fleet.replicas[10].address: "[fe80::1%eth0]:80" has a zone, which Envoy cannot dial`,
		`f:18: fleet.replicas[11].address: "a:99999" has a port that is not a number from 1 to 65535`,
		`f:20: fleet.replicas[12].models[0].id: is missing`,
		`f:20: fleet.replicas[12].models[2].id: "a" is listed twice`,
		`f:20: fleet.replicas[12].models[2].base: is missing; an adapter needs the model it adapts`,
		`f:20: fleet.replicas[12].models[3].lora_path: "/x" is given, but lora is not set`,
		`f:21: fleet.replicas[12].events[0].rank: -1 is not from 0 to 1023`,
		`f:21: fleet.replicas[12].events[0].endpoint: is missing`,
		`f:21: fleet.replicas[12].events[1].endpoint: "udp://x:1" is not of the form tcp://host:port`,
		`f:21: fleet.replicas[12].events[2].rank: 0 is listed twice`,
		`f:21: fleet.replicas[12].events[2].endpoint: "tcp://*" has no port`,
		`f:21: fleet.replicas[12].events[3].endpoint: "tcp://*:x" has a port that is not a number from 1 to 65535`,
		`f:21: fleet.replicas[12].events[3].replay_endpoint: "nonsense" is not of the form tcp://host:port`,
		`f:22: fleet.replicas[12].role: "encode" is none of both, prefill, decode`,
		`f:23: fleet.replicas[12].kv_connector: "Nixl Connector" is not the name of a KV connector, such as NixlConnector`,
		`f:24: fleet.replicas[13].events[2].replay_endpoint: "tcp://*:2" is the endpoint too: events and replays have a port each`,
		`f:25: fleet.replicas[14].events[1].endpoint: "tcp://10.0.0.3:1" is that of replicas[13].events[0], whose blocks would count for both (and line 24)`,
		`f:25: fleet.replicas[14].events[2].endpoint: "tcp://10.0.0.3:1" is that of replicas[13].events[1], whose blocks would count for both (and line 24)`,
		`f:26: fleet.replicas[15].events: 1 are given, but with sidecar set nothing subscribes to them`,
		`f:27: fleet.replicas[16].no_events: is set, but events or sidecar name a source of KV events`,
		`f:29: fleet.dns[0].name: "vllm" is not of the form name:port`,
		`f:30: fleet.dns[1].replica.address: "1.1.1.1:1" is given, but addresses are found here`,
		`f:30: fleet.dns[1].name: "_http._tcp.vllm:80" is not the name of SRV records`,
		`f:31: fleet.tls.enabled: is false, but files or a name are given`,
		`f:31: fleet.tls.key_file: is missing beside cert_file`,
		`f:32: fleet.event_hosts[3]: "10.0.0.0/99" is neither an IP address, a network (10.0.0.0/8) nor a host name`,
		`f:32: fleet.event_hosts[4]: "a b" is neither an IP address, a network (10.0.0.0/8) nor a host name`,
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		g, w := at(got, i), at(want, i)
		if g != w {
			t.Errorf("%d:\ngot  %s\nwant %s", i, g, w)
		}
	}
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "(nothing)"
}

func TestOptionsFromYAML(t *testing.T) {
	o := must.Get(parse(`
fleet:
  dead_after: 3s
  replicas:
  - address: "10.0.0.1:8000"
  - address: "[fd00::2]:8000"
    tenant: acme
    block_size: 16
    hash_seed: "42"
    kv_report_full: true
    role: decode
    kv_connector: NixlConnector
    models: [{id: m}, {id: l, base: m, lora: true, lora_path: /l}]
    events: [{endpoint: "tcp://*:5557", replay_endpoint: "tcp://*:5558", topic: kv}, {rank: 1, endpoint: "tcp://*:5559"}]
  dns:
  - {name: "vllm.default.svc:8000", replica: {tenant: acme}}
  - {name: "_http._tcp.vllm.default.svc"}
  tls: {enabled: true, server_name: vllm}
  token_file: /key
`))(t)
	if o.DeadAfter != 3*time.Second || o.ScrapeInterval != time.Second || len(o.Replicas) != 2 || *o.Replicas[1].HashSeed != "42" ||
		o.DNS[0].Replica.Tenant != "acme" {
		t.Errorf("%+v", o)
	}
	out := must.Get(config.Print(file{o}))(t)
	if back, err := parse(string(out)); err != nil || !reflect.DeepEqual(back, o) {
		t.Errorf("printed and read back: %v\n%s", err, out)
	}
	if err := (Options{}).Validate(); err != nil {
		t.Errorf("the zero value is the defaults: %v", err)
	}
}
