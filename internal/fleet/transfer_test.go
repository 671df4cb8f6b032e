package fleet

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// The lines are those of a vLLM 0.32.0 that was started with NixlConnector, before its
// first request.
func TestConnectorOfARealServer(t *testing.T) {
	for version, want := range map[string]string{"nixl-0.32.0": "NixlConnector", "0.32.0": "", "0.21.0": ""} {
		var p page
		for range 2 { // the second time over the values of the first
			if err := p.read(bytes.NewReader(realPage(t, version)), 1<<20); err != nil || p.connector != want {
				t.Errorf("%s: connector %q, %v", version, p.connector, err)
			}
		}
	}
}

const nixlPage = `vllm:nixl_num_failed_transfers_total{engine="0"} 0` + "\n"

// A connector is found in the configuration, else by its metrics.
func TestConnectorsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		configured, metrics string
		want                Transfer
	}{
		"nowhere":                    {want: Transfer{}},
		"configuration":              {configured: "MyConnector", metrics: nixlPage, want: Transfer{Connector: "MyConnector", From: FoundInConfiguration}},
		"configuration: it has none": {configured: "none", metrics: nixlPage, want: Transfer{From: FoundInConfiguration}},
		"metrics":                    {metrics: nixlPage, want: Transfer{Connector: "NixlConnector", From: FoundInMetrics}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fake(1, 0)
				f.answer["/metrics"] += c.metrics
				w := start(t, Options{Replicas: []ReplicaOptions{{Address: a, Role: "decode", KVConnector: c.configured}}}, map[string]*fakeReplica{a: f})
				time.Sleep(10 * time.Minute)
				r := w.fleet.Snapshot().Replicas[0]
				if !r.Ready || r.Transfer != c.want || r.Role != RoleDecode {
					t.Errorf("ready %v, transfer %+v, role %v", r.Ready, r.Transfer, r.Role)
				}
				if n := w.net.count("/server_info"); n > 0 {
					t.Errorf("/server_info was asked for %d times", n)
				}
			})
		})
	}
}
