package main

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/testenv"
)

// TestALaterReplicaLeavesTheRouterReady: the past events of a replica are waited for at the start
// alone; then a replica whose events do not come is in a note.
func TestALaterReplicaLeavesTheRouterReady(t *testing.T) {
	for name, late := range map[string]bool{"of the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			r, err := newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			k := r.replicas
			testenv.Run(t, k.fleet.Run)
			testenv.Run(t, k.feed.Run)
			settled := func() bool { return k.fleet.Snapshot().Settled && (!late || k.ready() == nil) }
			until(t, "the fleet has settled", settled)
			k.feed.Join(&fleet.Replica{Addr: "127.0.0.1:1", Ranks: []int{0}, Reported: fleet.Reported{
				BlockSize: 16, Models: []fleet.Model{{ID: "m", Base: "m"}}, Events: []fleet.EventSource{{Endpoint: "tcp://127.0.0.1:1"}},
			}})
			if err := k.ready(); (err == nil) != late {
				t.Errorf("ready: %v", err)
			}
			told := slices.ContainsFunc(k.notes(k.fleet.Snapshot()), func(n string) bool { return strings.Contains(n, "past KV events have not been received yet") })
			if told != late {
				t.Errorf("in a note: %v", told)
			}
		})
	}
}
