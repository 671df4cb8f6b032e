package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/tracefile"
	"warmroute/render/testkit/must"
)

// TestPrefillsOfTheFleet: what replicas have counted since the last call, by model; those that have
// joined or restarted since, or count nothing, have no part in it.
func TestPrefillsOfTheFleet(t *testing.T) {
	rep := func(addr, model string, joined uint64, queries, hits, seconds, requests float64) *fleet.Replica {
		return &fleet.Replica{Addr: addr, Ready: true, Joined: joined, Reported: fleet.Reported{Models: []fleet.Model{{ID: model, Base: model}}},
			Load: []fleet.Load{{PrefixQueries: queries, PrefixHits: hits, Times: fleet.Times{Prefill: fleet.Spent{Seconds: seconds, Requests: requests}}}}}
	}
	var s *fleet.Snapshot
	p := prefills(func() *fleet.Snapshot { return s })
	for i, step := range []struct {
		replicas []*fleet.Replica
		want     []tracefile.Prefilled
	}{
		{[]*fleet.Replica{rep("1:1", "m", 1, 5000, 1000, 3, 9), rep("2:1", "m", 1, 0, 0, 0, 0)}, nil},
		{[]*fleet.Replica{rep("1:1", "m", 1, 9000, 2000, 5, 19), rep("2:1", "m", 1, 500, 0, 1, 1), rep("3:1", "n", 1, 500, 0, 1, 1)}, []tracefile.Prefilled{{Model: "m", Seconds: 3, Tokens: 3500, Requests: 11}}},
		{[]*fleet.Replica{rep("1:1", "m", 1, 10, 0, 1, 1), rep("2:1", "m", 2, 900, 0, 2, 2), rep("3:1", "n", 1, 700, 100, 2, 2)}, []tracefile.Prefilled{{Model: "n", Seconds: 1, Tokens: 100, Requests: 1}}},
	} {
		s = fleet.NewSnapshot(step.replicas...)
		if got := p(); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
}

// TestPrefillsAreTraced: the trace file has what the replicas have counted.
func TestPrefillsAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, c := time.Now(), defaultConfig().Filter
		c.TraceFile = filepath.Join(t.TempDir(), "trace.jsonl")
		snapshot := func() *fleet.Snapshot {
			n := time.Since(began).Seconds()
			return fleet.NewSnapshot(&fleet.Replica{Addr: "1:1", Ready: true, Joined: 1, Reported: fleet.Reported{Models: []fleet.Model{{ID: "m", Base: "m"}}},
				Load: []fleet.Load{{PrefixQueries: 100 * n, Times: fleet.Times{Prefill: fleet.Spent{Seconds: n, Requests: n}}}}})
		}
		w := newTraceFile(c, snapshot, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.Do(t, w.Run(ctx))
		text, err := os.ReadFile(c.TraceFile)
		if err != nil || !strings.Contains(string(text), `{"prefills":"m",`) {
			t.Errorf("%s, %v", text, err)
		}
	})
}
