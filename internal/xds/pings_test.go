package xds

import (
	"log/slog"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

// TestTheRoutersClusterStays: a reload that leaves a body mode, or a setting, in which requests may wait
// for the router replaces no cluster of Envoy's: its streams would end, and those requests fail.
func TestTheRoutersClusterStays(t *testing.T) {
	buffered := envoy.Options{XDS: []string{"127.0.0.1:9001"}, AccessLog: "none"}
	duplex, held := buffered, buffered
	duplex.Mode, held.Hold = envoy.FullDuplex, time.Minute
	p := New(Settings{Envoy: buffered}, new(some), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	cluster := func(o envoy.Options) *clusterv3.Cluster {
		p.Set(Settings{Envoy: o})
		live, _, err := p.render(state{settings: p.wants()})
		must.Do(t, err)
		for _, c := range live.Clusters {
			if c.Name == "warmroute" {
				return c
			}
		}
		t.Fatal("no cluster of the router")
		return nil
	}
	first := cluster(buffered)
	waits := cluster(duplex)
	if proto.Equal(first, waits) {
		t.Error("Envoys ping no faster where requests wait")
	}
	for _, o := range []envoy.Options{buffered, held, duplex, buffered} {
		if !proto.Equal(waits, cluster(o)) {
			t.Errorf("mode %q with a hold of %v: another cluster", o.Mode, o.Hold)
		}
	}
}
