package kvevents

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the series of a rank, each read from its Status.
var metrics = []struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *Status) float64
}{
	{"warmroute_kv_connected", "1 while the event socket of a rank is up.", prometheus.GaugeValue, func(s *Status) float64 { return flag(s.Connected) }},
	{"warmroute_kv_synced", "1 once a rank's past events have been received.", prometheus.GaugeValue, func(s *Status) float64 { return flag(s.Synced) }},
	{"warmroute_kv_batches_total", "KV event batches applied.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Batches) }},
	{"warmroute_kv_events_total", "KV events applied.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Events) }},
	{"warmroute_kv_blocks_stored_total", "Block hashes in applied BlockStored events.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.BlocksStored) }},
	{"warmroute_kv_blocks_removed_total", "Block hashes in applied BlockRemoved events.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.BlocksRemoved) }},
	{"warmroute_kv_clears_total", "AllBlocksCleared events applied.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Clears) }},
	{"warmroute_kv_unknown_events_total", "Events of an unknown kind, skipped.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.UnknownEvents) }},
	{"warmroute_kv_unkeyed_events_total", "BlockStored events whose token ids do not cover their hashes.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Unkeyed) }},
	{"warmroute_kv_orphan_blocks_total", "Stored blocks whose parent was not known yet.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.OrphanBlocks) }},
	{"warmroute_kv_gaps_total", "Gaps in a rank's sequence.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Gaps) }},
	{"warmroute_kv_lost_total", "Gaps that replay could not fill: the rank's blocks were dropped.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Lost) }},
	{"warmroute_kv_restarts_total", "Restarts of a rank's publisher.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Restarts) }},
	{"warmroute_kv_replays_total", "Replay requests sent.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Replays) }},
	{"warmroute_kv_replay_failures_total", "Replay requests that failed.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.ReplayFails) }},
	{"warmroute_kv_paused", "1 while a rank's publisher is left alone because too many of its batches were refused or lost.", prometheus.GaugeValue, func(s *Status) float64 { return flag(s.Paused > 0) }},
	{"warmroute_kv_pauses_total", "Times a rank's publisher was left alone because too many of its batches were refused or lost.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Pauses) }},
	{"warmroute_kv_rejected_batches_total", "Batches that could not be decoded; no part of them was applied.", prometheus.CounterValue, func(s *Status) float64 { return float64(s.Rejected) }},
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var descs = func() []*prometheus.Desc {
	descs := make([]*prometheus.Desc, len(metrics))
	for i, m := range metrics {
		descs[i] = prometheus.NewDesc(m.name, m.help, []string{"replica", "rank"}, nil)
	}
	return descs
}()

// Describe sends the descriptions of the metrics that Collect sends.
func Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect sends the metrics of a rank of a replica.
func (s *Status) Collect(ch chan<- prometheus.Metric, replica string, rank int) {
	for i, m := range metrics {
		ch <- prometheus.MustNewConstMetric(descs[i], m.kind, m.value(s), replica, strconv.Itoa(rank))
	}
}
