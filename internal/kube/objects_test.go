package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"warmroute/internal/fleet"
	"warmroute/internal/kube/kubetest"
	"warmroute/render/testkit/must"
)

// recorded reads the objects of a file in testdata.
func recorded(t testing.TB, file string) []kubetest.Object {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join("testdata", file)))(t)
	return kubetest.Parse(t, string(b))
}

// example returns the only object of a kind in a file of the example.
func example(t testing.TB, file, kind string) kubetest.Object {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join("..", "..", "examples", "inference-pool", file)))(t)
	for _, o := range kubetest.Parse(t, string(b)) {
		if o["kind"] == kind {
			return o
		}
	}
	t.Fatalf("%s holds no %s", file, kind)
	return nil
}

// TestExamplePool: the pool of the example selects the pods of its deployment,
// on a port they have.
func TestExamplePool(t *testing.T) {
	p := must.Get(readPool(example(t, "pool.yaml", "InferencePool")))(t)
	template := section(example(t, "vllm.yaml", "Deployment"), "spec", "template")
	if want, err := selector(section(template, "metadata", "labels")); err != nil || p.selector != want {
		t.Errorf("it selects %q, the pods are %q, %v", p.selector, want, err)
	}
	containers, _ := section(template, "spec")["containers"].([]any)
	text, err := json.Marshal(containers)
	if err != nil || len(p.ports) != 1 || !strings.Contains(string(text), `"containerPort":`+strconv.Itoa(int(p.ports[0]))) {
		t.Errorf("ports %v of %s, %v", p.ports, text, err)
	}
	if !p.failOpen {
		t.Error("it does not fail open")
	}
}

func TestReadPool(t *testing.T) {
	for file, want := range map[string]pool{
		"pool-v1.yaml":    {selector: "app=vllm-qwen3-8b", ports: []uint16{8000}, failOpen: true},
		"pool-ranks.yaml": {selector: "app=vllm-dp,inference.networking.k8s.io/engine-type=vllm", ports: []uint16{8000, 8001, 8002, 8003}},
	} {
		got, err := readPool(recorded(t, file)[0])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", file, got, err, want)
		}
	}
}

func TestReadPoolRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "spec.selector: it names no label",
		`{"spec":{"selector":{"matchLabels":{}},"targetPorts":[{"number":1}]}}`:                     "spec.selector: it names no label",
		`{"spec":{"selector":{"matchLabels":{"a":1}},"targetPorts":[{"number":1}]}}`:                `spec.selector: "a" is not a label with a value`,
		`{"spec":{"selector":{"matchLabels":{"a,b":"c"}},"targetPorts":[{"number":1}]}}`:            `spec.selector: "a,b" is not a label with a value`,
		`{"spec":{"selector":{"matchLabels":{"a":"b"}}}}`:                                           "spec: it has 0 target ports",
		`{"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":0}]}}`:              "spec: a target port is 0, not a number from 1 to 65535",
		`{"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":8000.5}]}}`:         "spec: a target port is 8000.5, not a number from 1 to 65535",
		`{"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":65536}]}}`:          "spec: a target port is 65536, not a number from 1 to 65535",
		`{"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":["http"]}}`:                    "spec: a target port is <nil>, not a number from 1 to 65535",
		`{"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":5},{"number":5}]}}`: "spec: the target port 5 is there twice",
	} {
		var o object
		must.Do(t, json.Unmarshal([]byte(text), &o))
		if _, err := readPool(o); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestReadPods(t *testing.T) {
	want := []pod{
		{name: "vllm-qwen3-8b-7c9d8f6b5-2xk4p", addr: netip.MustParseAddr("10.42.1.17"), ready: true},
		{name: "vllm-qwen3-8b-7c9d8f6b5-9qzrw", addr: netip.MustParseAddr("fd00:42:2::9"), ready: true},
		{name: "vllm-qwen3-8b-7c9d8f6b5-b5m2n", addr: netip.MustParseAddr("10.42.1.18")},
		{name: "vllm-qwen3-8b-6d5f7c8b9-t7x8v", addr: netip.MustParseAddr("10.42.3.5")},
		{name: "vllm-qwen3-8b-7c9d8f6b5-zz5kd"},
		{name: "vllm-llama-0", addr: netip.MustParseAddr("10.42.1.99"), ready: true},
	}
	for i, o := range recorded(t, "pods.yaml") {
		if got := readPod(o); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%d: got %+v, want %+v", i, got, want[i])
		}
	}
}

// The names are llm-d's; a pod that only encodes images takes no prompts.
func TestRoleOfAPod(t *testing.T) {
	for name, want := range map[string]pod{
		"": {ready: true}, "other": {ready: true}, "encode": {},
		"prefill": {ready: true, role: "prefill"}, "encode-prefill": {ready: true, role: "prefill"},
		"decode": {ready: true, role: "decode"}, "encode-decode": {ready: true, role: "decode"},
		"both": {ready: true, role: "both"}, "prefill-decode": {ready: true, role: "both"}, "encode-prefill-decode": {ready: true, role: "both"},
	} {
		o := object{
			"metadata": object{"name": "a", "labels": object{"llm-d.ai/role": name}},
			"status":   object{"podIP": "10.0.0.1", "conditions": []any{object{"type": "Ready", "status": "True"}}},
		}
		want.name, want.addr = "a", netip.MustParseAddr("10.0.0.1")
		if got := readPod(o); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
		for _, template := range []string{"", "prefill"} {
			list := replicas(pool{ports: []uint16{1}}, []pod{want}, fleet.ReplicaOptions{Role: template})
			if role := cmp.Or(want.role, template); want.ready && list[0].Role != role || !want.ready && len(list) > 0 {
				t.Errorf("%q over %q: %+v", name, template, list)
			}
		}
	}
}

func ready(name, ip string) pod { return pod{name: name, addr: netip.MustParseAddr(ip), ready: true} }

func TestReplicas(t *testing.T) {
	template := fleet.ReplicaOptions{Tenant: "acme", Events: []fleet.EventSource{{Endpoint: "tcp://*:5557"}, {Rank: 1, Endpoint: "tcp://*:5558"}}}
	inactive := ready("b", "10.0.0.2")
	inactive.active = []uint16{8001}
	of := func(name, addr string, events ...fleet.EventSource) fleet.ReplicaOptions {
		return fleet.ReplicaOptions{Name: name, Address: addr, Tenant: "acme", Events: events}
	}
	for name, c := range map[string]struct {
		ports []uint16
		pods  []pod
		want  []fleet.ReplicaOptions
	}{
		"one port takes every event source": {[]uint16{8000}, []pod{ready("b", "10.0.0.2"), ready("a", "10.0.0.1")},
			[]fleet.ReplicaOptions{of("a", "10.0.0.1:8000", template.Events...), of("b", "10.0.0.2:8000", template.Events...)}},
		"a port per rank": {[]uint16{8000, 8001}, []pod{ready("a", "fd00::1"), inactive, {name: "c"}},
			[]fleet.ReplicaOptions{of("b-rank-1", "10.0.0.2:8001", template.Events[1]), of("a-rank-0", "[fd00::1]:8000", template.Events[0]), of("a-rank-1", "[fd00::1]:8001", template.Events[1])}},
		"one address is one replica": {[]uint16{8000}, []pod{ready("z", "10.0.0.1"), ready("y", "10.0.0.1")},
			[]fleet.ReplicaOptions{of("y", "10.0.0.1:8000", template.Events...)}},
		"nobody": {[]uint16{8000}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := replicas(pool{ports: c.ports}, c.pods, template); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// FuzzObjects: from any answer of an API server, the fleet accepts every replica
// made, and a selector contains only labels.
func FuzzObjects(f *testing.F) {
	for _, file := range []string{"pool-v1.yaml", "pool-ranks.yaml", "pods.yaml"} {
		for _, o := range recorded(f, file) {
			b := must.Get(json.Marshal(o))(f)
			f.Add(b, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var poolObject, podObject object
		d := json.NewDecoder(bytes.NewReader(a))
		if d.Decode(&poolObject) != nil || json.Unmarshal(b, &podObject) != nil {
			return
		}
		p, err := readPool(poolObject)
		if err != nil {
			p = pool{ports: []uint16{8000, 8001}}
		} else if strings.Count(p.selector, ",")+1 != strings.Count(p.selector, "=") || strings.ContainsAny(p.selector, " ()!") {
			t.Fatalf("selector %q", p.selector)
		}
		list := replicas(p, []pod{readPod(podObject)}, fleet.ReplicaOptions{})
		if _, err := fleet.New(fleet.Options{Replicas: list}, fleet.Hooks{}); err != nil {
			t.Fatalf("%+v: %v", list, err)
		}
	})
}
