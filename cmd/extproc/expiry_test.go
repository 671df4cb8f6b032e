package main

import (
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
