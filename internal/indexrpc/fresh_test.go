package indexrpc

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/render/testkit/must"
)

// TestOnlyReportsMakeABlockFresher: stats, and an eviction do not; a report of other blocks and a
// stream known to be whole do.
func TestOnlyReportsMakeABlockFresher(t *testing.T) {
	event := func(e pb.EventType) *pb.PublishEventRequest {
		return &pb.PublishEventRequest{Type: e, ReplicaId: "r", Model: "m", HashScheme: "engine", BlockHash: hash(101), Stats: &pb.ReplicaStats{Running: 1}}
	}
	whole := event(pb.EventType_REPLICA_UPDATED)
	whole.Current = true
	stats := from("r", "engine", 500, 1)
	stats.Prefixes, stats.Stats = nil, &pb.ReplicaStats{Running: 2}
	empty := from("r", "engine", 500, 0)
	for name, c := range map[string]struct {
		send func(b *bench)
		want float64
	}{
		"nothing":                     {func(*bench) {}, 0.5},
		"stats":                       {func(b *bench) { b.report(stats) }, 0.5},
		"a report without blocks":     {func(b *bench) { b.report(empty) }, 0.5},
		"an eviction":                 {func(b *bench) { b.publish(event(pb.EventType_PREFIX_EVICTED)) }, 0.5},
		"a sign of life":              {func(b *bench) { b.publish(event(pb.EventType_REPLICA_UPDATED)) }, 0.5},
		"the replica's other rank":    {func(b *bench) { q := from("r", "engine", 100, 1); q.Rank = 1; b.report(q) }, 0.5},
		"other blocks":                {func(b *bench) { b.report(from("r", "engine", 500, 1)) }, 1},
		"a stream known to be whole":  {func(b *bench) { b.publish(whole) }, 1},
		"the router's own subscriber": {func(b *bench) { b.subscribes("r", 100, 101) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t)
			b.report(from("r", "engine", 100, 2))
			b.advance(index.DefaultReplicaTTL / 2)
			c.send(b)
			out := must.Get(b.c.LookupRoute(b.ctx(), ask("engine", 100, 1)))(t)
			for _, r := range out.GetRoutes() {
				if r.GetRank() == 0 && (r.GetFreshness() != c.want || r.GetMatchedTokens() != 128) {
					t.Errorf("%v, want freshness %v", r, c.want)
				}
			}
			if len(out.GetRoutes()) == 0 {
				t.Error(out.GetReason())
			}
		})
	}
}

// subscribes has the index fed by the router itself, after the last call of a reporter.
func (b *bench) subscribes(replica string, hashes ...uint64) {
	b.advance(time.Second)
	h := index.Holder{Replica: replica}
	incarnation := b.x.Begin(h)
	e := index.Event{Kind: index.Stored, Scope: index.Scope{Model: "m", Scheme: "engine", BlockSize: 128}, Hashes: hashes}
	must.Get(b.x.Apply(&index.Batch{Holder: h, Incarnation: incarnation, Events: []index.Event{e}}))(b.t)
}

// TestLookupsAreTimed: each lookup is one observation, of the time it took.
func TestLookupsAreTimed(t *testing.T) {
	b := serve(t)
	begun := time.Now()
	b.report(from("r", "engine", 100, 1))
	for range 3 {
		b.want(ask("engine", 100, 1), "r:128")
	}
	b.want(ask("", 100, 1), "EMPTY_SCHEME")
	longest := time.Since(begun).Seconds()
	reg := prometheus.NewRegistry()
	reg.MustRegister(b.s.Collectors()...)
	families := must.Get(reg.Gather())(t)
	counts := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "warmroute_lookup_route_latency_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			counts[m.GetLabel()[0].GetValue()] = h.GetSampleCount()
			if sum := h.GetSampleSum(); !(sum > 0 && sum < longest) {
				t.Errorf("%s: lookups took %v s, all of this test %v s", m.GetLabel()[0].GetValue(), sum, longest)
			}
		}
	}
	if counts["m"] != 3 || counts[otherModel] != 1 || len(counts) != 2 {
		t.Errorf("observations by model: %v", counts)
	}
}

// TestScrapesAtOnce: two scrapes count the entries while models come. The race
// detector, or the runtime's check of maps, tells of a scrape without its lock.
func TestScrapesAtOnce(t *testing.T) {
	b := serve(t)
	const models = 200
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for len(b.s.metrics.held()) < models && !t.Failed() {
			}
		})
	}
	for i := range models {
		q := from("r", "engine", uint64(100+i), 1)
		q.Model = strings.Repeat("m", i+1)
		if _, err := b.s.ReportCacheState(t.Context(), q); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}
