package main

import (
	"strings"
	"testing"

	"warmroute/filter"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
)

// TestCheckSaysWhoPairs: check names the parts of the file's replicas, and says why no
// request will be split; a file without roles and mode has no word of it.
func TestCheckSaysWhoPairs(t *testing.T) {
	replicas := func(of ...string) (all []fleet.ReplicaOptions) {
		for _, rc := range of {
			role, connector, _ := strings.Cut(rc, " ")
			all = append(all, fleet.ReplicaOptions{Address: "10.0.0.1:8000", Role: role, KVConnector: connector})
		}
		return all
	}
	balance := policy.NameBalance
	const no = "no request is split, because "
	for name, tt := range map[string]struct {
		mode     filter.Transport
		replicas []fleet.ReplicaOptions
		policy   *policy.Name
		want     string // "" = nothing is said of a reason
	}{
		"roles without a mode":  {"off", replicas("prefill", "decode"), nil, no + "prefill_decode.mode is off"},
		"a pair":                {"pull", replicas("prefill", "decode"), nil, ""},
		"nobody prefills":       {"pull", replicas("decode", "decode"), nil, no + "all replicas with a KV connector have the role decode"},
		"alone":                 {"pull", replicas("both"), nil, no + "10.0.0.1:8000 is the only replica with a KV connector"},
		"no connector":          {"pull", replicas("both none", "both none"), nil, no + "no replica has a known KV connector"},
		"one without connector": {"pull", replicas("prefill none", "decode"), nil, no + "10.0.0.1:8000 is the only replica with a KV connector"},
		"other connectors":      {"header", replicas("prefill NixlConnector", "decode MooncakeConnector"), nil, no + "the replicas that compute prompts and those that answer differ in KV connector"},
		"pull over a store":     {"pull", replicas("prefill LMCacheConnectorV1", "decode LMCacheConnectorV1"), nil, no + "mode pull needs NixlConnector, and the connector is LMCacheConnectorV1"},
		"another policy":        {"pull", replicas("prefill", "decode"), &balance, no + "policy.route_policy is filter-then-score"},
	} {
		c := defaultConfig()
		c.PrefillDecode.Mode, c.Fleet.Replicas, c.Policy.RoutePolicy = tt.mode, tt.replicas, tt.policy
		got := c.pairNotes()
		if !strings.Contains(got, tt.want) || strings.Contains(got, no) != (tt.want != "") {
			t.Errorf("%s:\n%s\nwant %q", name, got, tt.want)
		}
		if !strings.HasPrefix(got, "# prefill and decode: mode "+string(tt.mode)) || strings.Count(got, "10.0.0.1:8000: role ") != len(tt.replicas) {
			t.Errorf("%s: not every replica's part is said:\n%s", name, got)
		}
		for line := range strings.Lines(got) {
			if !strings.HasPrefix(line, "# ") {
				t.Errorf("%s: %q is no comment", name, line)
			}
		}
	}
	c := defaultConfig()
	c.Fleet.DNS = []fleet.DNSOptions{{Name: "prefill.local", Replica: fleet.ReplicaOptions{Role: "prefill", KVConnector: "NixlConnector"}}}
	c.Kubernetes.Pool = "pool"
	for _, want := range []string{"# prefill and decode: mode off\n", "#   those of prefill.local: role prefill, connector NixlConnector\n", "#   those of the pool: role both unless its label llm-d.ai/role says another, connector as the replica reports\n"} {
		if got := c.pairNotes(); !strings.Contains(got, want) {
			t.Errorf("of found replicas:\n%s\nwant %q", got, want)
		}
	}
	c = defaultConfig()
	c.Fleet.Replicas = replicas(" ")
	if got := c.pairNotes(); got != "" {
		t.Errorf("without roles and mode: %q", got)
	}
}

// TestWhyNoPair: with what replicas report, versions and block sizes count, too.
func TestWhyNoPair(t *testing.T) {
	one := func(version string, block int) *fleet.Replica {
		return &fleet.Replica{Reported: fleet.Reported{Version: version, BlockSize: block, Transfer: fleet.Transfer{Connector: fleet.Nixl}}}
	}
	for name, tt := range map[string]struct {
		replicas []*fleet.Replica
		paired   bool
	}{
		"alike":          {[]*fleet.Replica{one("0.32.0", 16), one("0.32.0", 16)}, true},
		"other versions": {[]*fleet.Replica{one("0.32.0", 16), one("0.33.0", 16)}, false},
		"other blocks":   {[]*fleet.Replica{one("0.32.0", 16), one("0.32.0", 32)}, false},
		"two of three":   {[]*fleet.Replica{one("0.32.0", 16), one("0.33.0", 16), one("0.33.0", 16)}, true},
	} {
		if why := whyNoPair(filter.TransportPull, tt.replicas); (why == "") != tt.paired {
			t.Errorf("%s: %q", name, why)
		}
	}
}
