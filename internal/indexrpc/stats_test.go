package indexrpc

import (
	"testing"
	"time"

	pb "warmroute/index/indexpb"

	"warmroute/render/testkit/must"
)

// seen is the service's report of a replica: its stats, and the time of its
// last report.
func (b *bench) seen(replica string) (stats *pb.ReplicaStats, lastMs int64) {
	b.t.Helper()
	state := must.Get(b.c.GetCacheState(b.ctx(), &pb.GetCacheStateRequest{}))(b.t)
	for _, r := range state.GetReplicas() {
		if r.GetReplicaId() == replica {
			return r.GetStats(), r.GetLastSeenMs()
		}
	}
	return nil, 0
}

// TestTheCallsReplicaOwnsItsStats: the top-level replica_id is authoritative,
// by every way that stats come in. Stats inside that name another replica count
// for the one of the call, and the other's stay as they were: neither its
// numbers nor the time it was last heard of.
func TestTheCallsReplicaOwnsItsStats(t *testing.T) {
	foreign := func() *pb.ReplicaStats {
		return &pb.ReplicaStats{ReplicaId: "other", HitRate: 0.25, Pressure: 0.75, Running: 9, Waiting: 8, CacheBlocks: 7}
	}
	report := func() *pb.ReportCacheStateRequest {
		q := from("r", "engine", 100, 2)
		q.Stats = foreign()
		return q
	}
	event := func() *pb.PublishEventRequest {
		return &pb.PublishEventRequest{Type: pb.EventType_REPLICA_UPDATED, ReplicaId: "r", Stats: foreign()}
	}
	for name, send := range map[string]func(b *bench){
		"ReportCacheState": func(b *bench) { b.report(report()) },
		"PublishEvent":     func(b *bench) { b.publish(event()) },
		"StreamCacheState": func(b *bench) {
			s := must.Get(b.c.StreamCacheState(b.ctx()))(b.t)
			must.Do(b.t, s.Send(report()))
			must.Get(s.CloseAndRecv())(b.t)
		},
		"StreamEvents": func(b *bench) {
			s := must.Get(b.c.StreamEvents(b.ctx()))(b.t)
			must.Do(b.t, s.Send(event()))
			must.Get(s.CloseAndRecv())(b.t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t)
			own := from("other", "engine", 100, 3)
			own.Stats = &pb.ReplicaStats{ReplicaId: "other", HitRate: 0.5, Running: 2}
			b.report(own)
			_, before := b.seen("other")
			b.advance(time.Second)
			send(b)
			if s, last := b.seen("r"); s.GetReplicaId() != "r" || s.GetRunning() != 9 || s.GetWaiting() != 8 || s.GetCacheBlocks() != 7 ||
				s.GetHitRate() != 0.25 || s.GetPressure() != 0.75 || last != b.clock().UnixMilli() {
				t.Errorf("the call's replica: %v, last heard of at %d", s, last)
			}
			if s, last := b.seen("other"); s.GetReplicaId() != "other" || s.GetRunning() != 2 || s.GetWaiting() != 0 || s.GetHitRate() != 0.5 || last != before {
				t.Errorf("the other replica: %v, last heard of at %d; want what it said itself, at %d", s, last, before)
			}
			routes, err := b.c.LookupRoute(b.ctx(), ask("engine", 100, 3))
			if err != nil || len(routes.GetRoutes()) == 0 {
				t.Fatalf("%v, %v", routes, err)
			}
			for _, route := range routes.GetRoutes() {
				if want := map[string]int64{"other": 2, "r": 9}[route.GetReplicaId()]; int64(route.GetStats().GetRunning()) != want || route.GetStats().GetReplicaId() != route.GetReplicaId() {
					t.Errorf("route to %s has stats %v", route.GetReplicaId(), route.GetStats())
				}
			}
		})
	}
}
