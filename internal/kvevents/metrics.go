package kvevents

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the series of a rank, each read from its Status. A metric with a
// label has a series for each of its values.
var metrics = []struct {
	name, help string
	kind       prometheus.ValueType
	label      string // "" = none
	series     []series
}{
	{"warmroute_kv_connected", "1 while the event socket is up.", prometheus.GaugeValue, "", []series{
		{"", func(s *Status) float64 { return flag(s.Connected) }}}},
	{"warmroute_kv_batches_total", "KV event batches: applied, rejected (not decodable).", prometheus.CounterValue, "result", []series{
		{"applied", func(s *Status) float64 { return float64(s.Batches) }},
		{"rejected", func(s *Status) float64 { return float64(s.Rejected) }}}},
	{"warmroute_kv_events_total", "KV events: blocks (stored or removed), unkeyed (token ids do not cover the hashes), cleared, unknown (skipped).", prometheus.CounterValue, "kind", []series{
		{"blocks", func(s *Status) float64 { return float64(s.Events - s.Clears - s.Unkeyed) }},
		{"unkeyed", func(s *Status) float64 { return float64(s.Unkeyed) }},
		{"cleared", func(s *Status) float64 { return float64(s.Clears) }},
		{"unknown", func(s *Status) float64 { return float64(s.UnknownEvents) }}}},
	{"warmroute_kv_blocks_total", "Block hashes in applied events: stored, removed.", prometheus.CounterValue, "change", []series{
		{"stored", func(s *Status) float64 { return float64(s.BlocksStored) }},
		{"removed", func(s *Status) float64 { return float64(s.BlocksRemoved) }}}},
	{"warmroute_kv_lost_total", "Gaps that replay could not fill: the blocks were dropped.", prometheus.CounterValue, "", []series{
		{"", func(s *Status) float64 { return float64(s.Lost) }}}},
	{"warmroute_kv_interruptions_total", "Interruptions of events: gap, restart of the publisher, pause (too many batches were refused or lost).", prometheus.CounterValue, "kind", []series{
		{"gap", func(s *Status) float64 { return float64(s.Gaps) }},
		{"restart", func(s *Status) float64 { return float64(s.Restarts) }},
		{"pause", func(s *Status) float64 { return float64(s.Pauses) }}}},
	{"warmroute_kv_replays_total", "Replay requests: sent, failed.", prometheus.CounterValue, "what", []series{
		{"sent", func(s *Status) float64 { return float64(s.Replays) }},
		{"failed", func(s *Status) float64 { return float64(s.ReplayFails) }}}},
}

// series is one value of a metric's label.
type series struct {
	label string
	value func(s *Status) float64
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
		labels := []string{"replica", "rank"}
		if m.label != "" {
			labels = append(labels, m.label)
		}
		descs[i] = prometheus.NewDesc(m.name, m.help, labels, nil)
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
		for _, one := range m.series {
			labels := []string{replica, strconv.Itoa(rank)}
			if m.label != "" {
				labels = append(labels, one.label)
			}
			ch <- prometheus.MustNewConstMetric(descs[i], m.kind, one.value(s), labels...)
		}
	}
}
