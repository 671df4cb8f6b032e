package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/render/testkit/must"
)

// sidecarReport is one block of a replica that has a sidecar.
func sidecarReport(at time.Time) *indexpb.ReportCacheStateRequest {
	return &indexpb.ReportCacheStateRequest{ReplicaId: "10.0.0.1:8000", Model: "m", HashScheme: "engine", TimestampMs: at.UnixMilli(),
		Prefixes: []*indexpb.Prefix{{BlockSize: 16, BlockHashes: [][]byte{{7}}, TokenCounts: []uint64{16}}}}
}

func client(t *testing.T, service string) indexpb.CacheIndexClient {
	t.Helper()
	conn := must.Get(grpc.NewClient(service, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close() })
	return indexpb.NewCacheIndexClient(conn)
}

// TestSilentSidecarsExpire: a running router drops the blocks of a sidecar that is
// silent for replica_ttl at the sweep after it. By the default this takes 20 minutes.
func TestSilentSidecarsExpire(t *testing.T) {
	r, service := startRouter(t, "index_service: {listen: \"SERVICE\"}\nindex: {replica_ttl: 50ms}\nfleet: {replicas: [{address: \"10.0.0.1:8000\", sidecar: true}]}\n")
	out, err := client(t, service).ReportCacheState(t.Context(), sidecarReport(time.Now()))
	if err != nil || out.GetStored() != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	until(t, "the blocks are gone", func() bool { return r.replicas.index.Holdings(index.Holder{Replica: "10.0.0.1:8000"}) == 0 })
}

// TestFreshnessFollowsReplicaTTL: by the default of replica_ttl, a report that is
// half an hour old would be stale.
func TestFreshnessFollowsReplicaTTL(t *testing.T) {
	_, service := startRouter(t, "index_service: {listen: \"SERVICE\"}\nindex: {replica_ttl: 1h}\nfleet: {replicas: [{address: \"10.0.0.1:8000\", sidecar: true}]}\n")
	c := client(t, service)
	must.Get(c.ReportCacheState(t.Context(), sidecarReport(time.Now().Add(-30*time.Minute))))(t)
	out, err := c.LookupRoute(t.Context(), &indexpb.LookupRouteRequest{Model: "m", HashScheme: "engine", BlockSize: 16, BlockHashes: [][]byte{{7}}})
	if err != nil || len(out.GetRoutes()) != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	if f := out.GetRoutes()[0].GetFreshness(); f > 0.5 || f < 0.4 {
		t.Errorf("freshness %v, half of replica_ttl has passed", f)
	}
}

// TestSleepersHaveNoReportedBlocks: what a sidecar reports again of a replica that has discarded its
// cache in its sleep is not stored.
func TestSleepersHaveNoReportedBlocks(t *testing.T) {
	var asleep atomic.Bool
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/health":
		case "/v1/models":
			fmt.Fprint(w, `{"object": "list", "data": [{"id": "m", "root": "m"}]}`)
		case "/metrics":
			awake := 1
			if asleep.Load() {
				awake = 0
			}
			fmt.Fprintf(w, "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} %d\n", awake, 1-awake)
		default:
			http.NotFound(w, q)
		}
	}))
	t.Cleanup(replica.Close)
	addr := replica.Listener.Addr().String()
	r, service := startRouter(t, fmt.Sprintf("index_service: {listen: \"SERVICE\"}\nfleet: {scrape_interval: 100ms, replicas: [{address: %q, sidecar: true}]}\n", addr))
	report := sidecarReport(time.Now())
	report.ReplicaId = addr
	holdings := func() int { return r.replicas.index.Holdings(index.Holder{Replica: addr}) }
	reported := func() int {
		must.Get(client(t, service).ReportCacheState(t.Context(), report))(t)
		return holdings()
	}
	if n := reported(); n != 1 {
		t.Fatalf("%d blocks of a replica that is awake", n)
	}
	asleep.Store(true)
	until(t, "the replica sleeps", func() bool { at := r.replicas.fleet.Snapshot().Replica(addr); return at != nil && at.Empty })
	until(t, "its blocks are gone", func() bool { return holdings() == 0 })
	if n := reported(); n != 0 {
		t.Errorf("%d blocks of a replica that sleeps without its cache", n)
	}
}
