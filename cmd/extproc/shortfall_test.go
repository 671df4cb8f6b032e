package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// TestAReplicaThatDoesNotHitIsSaidOnce: from fleet snapshots and counters to the
// log, over virtual minutes; a replica whose metrics were never read is not
// judged.
func TestAReplicaThatDoesNotHitIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	r, err := newRouter(defaultConfig(), slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	predicted := int64(0)
	now := time.Unix(1_700_000_000, 0)
	for minute := range 20 {
		honest := fleet.Load{PrefixHits: float64(predicted) / 2, PrefixQueries: float64(predicted)}
		s := fleet.NewSnapshot(
			&fleet.Replica{Addr: "10.0.0.1:8000", Joined: 1, Load: []fleet.Load{honest, honest}},
			&fleet.Replica{Addr: "10.0.0.2:8000", Joined: 1, Load: []fleet.Load{{PrefixHits: float64(minute), PrefixQueries: float64(2 * predicted)}}},
			&fleet.Replica{Addr: "10.0.0.3:8000", Joined: 1},
		)
		claims := load.Claims{Tokens: predicted}
		r.outcomes.judge(now, s, map[string]load.Claims{"10.0.0.1:8000": claims, "10.0.0.2:8000": claims, "10.0.0.3:8000": claims})
		now, predicted = now.Add(time.Minute), predicted+100_000
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "replica=10.0.0.2:8000") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if v := r.outcomes.watch.State("10.0.0.1:8000"); !v.Complete || v.Flagged {
		t.Errorf("the honest replica: %+v", v)
	}
}
