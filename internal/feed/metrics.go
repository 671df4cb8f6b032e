package feed

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/kvevents"
)

// rankMetrics are the series of every rank, each read from its Status.
var rankMetrics = []struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *kvevents.Status) float64
}{
	{"warmroute_kv_connected", "1 while the event socket of a rank is up.", prometheus.GaugeValue, func(s *kvevents.Status) float64 { return flag(s.Connected) }},
	{"warmroute_kv_synced", "1 once a rank's past events have been received.", prometheus.GaugeValue, func(s *kvevents.Status) float64 { return flag(s.Synced) }},
	{"warmroute_kv_batches_total", "KV event batches applied.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Batches) }},
	{"warmroute_kv_events_total", "KV events applied.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Events) }},
	{"warmroute_kv_blocks_stored_total", "Block hashes in applied BlockStored events.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.BlocksStored) }},
	{"warmroute_kv_blocks_removed_total", "Block hashes in applied BlockRemoved events.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.BlocksRemoved) }},
	{"warmroute_kv_clears_total", "AllBlocksCleared events applied.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Clears) }},
	{"warmroute_kv_unknown_events_total", "Events of an unknown kind, skipped.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.UnknownEvents) }},
	{"warmroute_kv_unkeyed_events_total", "BlockStored events whose token ids do not cover their hashes.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Unkeyed) }},
	{"warmroute_kv_orphan_blocks_total", "Stored blocks whose parent was not known yet.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.OrphanBlocks) }},
	{"warmroute_kv_gaps_total", "Gaps in a rank's sequence.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Gaps) }},
	{"warmroute_kv_lost_total", "Gaps that replay could not fill: the rank's blocks were dropped.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Lost) }},
	{"warmroute_kv_restarts_total", "Restarts of a rank's publisher.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Restarts) }},
	{"warmroute_kv_replays_total", "Replay requests sent.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Replays) }},
	{"warmroute_kv_replay_failures_total", "Replay requests that failed.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.ReplayFails) }},
	{"warmroute_kv_paused", "1 while a rank's publisher is left alone because too many of its batches were refused or lost.", prometheus.GaugeValue, func(s *kvevents.Status) float64 { return flag(s.Paused > 0) }},
	{"warmroute_kv_pauses_total", "Times a rank's publisher was left alone because too many of its batches were refused or lost.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Pauses) }},
	{"warmroute_kv_rejected_batches_total", "Batches that could not be decoded; no part of them was applied.", prometheus.CounterValue, func(s *kvevents.Status) float64 { return float64(s.Rejected) }},
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var rankDescs = func() []*prometheus.Desc {
	descs := make([]*prometheus.Desc, len(rankMetrics))
	for i, m := range rankMetrics {
		descs[i] = prometheus.NewDesc(m.name, m.help, []string{"replica", "rank"}, nil)
	}
	return descs
}()

var trustDesc = prometheus.NewDesc("warmroute_prediction_trust",
	"1 for the trust in predictions of a rank's cache hits: exact, unconfirmed or inexact; /debug/replicas gives the reason.", []string{"replica", "rank", "trust"}, nil)

var scopesDesc = prometheus.NewDesc("warmroute_index_scopes_refused_total",
	"Times that a replica's blocks were not indexed because their adapter, block size or cache group is a scope beyond index.max_scopes or the replica's share of it.", []string{"replica"}, nil)

// Describe implements prometheus.Collector.
func (f *Feed) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range rankDescs {
		ch <- d
	}
	ch <- trustDesc
	ch <- scopesDesc
}

// Collect implements prometheus.Collector: it reads every rank's status.
func (f *Feed) Collect(ch chan<- prometheus.Metric) {
	for _, r := range f.Status() {
		ch <- prometheus.MustNewConstMetric(scopesDesc, prometheus.CounterValue, float64(r.Scopes.Refused), r.Addr)
		for _, rank := range r.Ranks {
			if g := rank.Groups; g != nil {
				ch <- prometheus.MustNewConstMetric(trustDesc, prometheus.GaugeValue, 1, r.Addr, strconv.Itoa(rank.Rank), g.Trust.String())
			}
			for i, m := range rankMetrics {
				ch <- prometheus.MustNewConstMetric(rankDescs[i], m.kind, m.value(&rank.Status), r.Addr, strconv.Itoa(rank.Rank))
			}
		}
	}
}
