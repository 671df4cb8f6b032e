package main

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/admin"
	"warmroute/internal/kvevents"
	"warmroute/internal/reporter"
	"warmroute/internal/telemetry"
)

// tally counts attempts to report stats.
type tally struct{ reported, failed atomic.Uint64 }

// state is a sidecar's complete state at one moment.
type state struct {
	events          kvevents.Status
	reports         reporter.Status
	stats, statsBad uint64
}

// gauges reads a running sidecar for /metrics and /readyz.
type gauges struct {
	holder     index.Holder
	subscriber *kvevents.Subscriber
	reporter   *reporter.Reporter
	stats      *tally
	limit      *telemetry.LogLimiter
}

func (g gauges) state() state {
	return state{g.subscriber.Status(), g.reporter.Status(), g.stats.reported.Load(), g.stats.failed.Load()}
}

// ready returns the reason why the index may lack blocks of the replica, nil if
// it has all.
func (g gauges) ready() error {
	s := g.state()
	var problems []error
	if !s.events.Connected {
		problems = append(problems, errors.New("the publisher is not connected"))
	}
	if !s.events.Synced {
		problems = append(problems, errors.New("the publisher's past events have not been received yet"))
	}
	if s.reports.Behind {
		problems = append(problems, errors.New("the index has not accepted all reports"))
	}
	return errors.Join(problems...)
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// series are the sidecar's own metrics, each read from the state; those of the events are the
// router's. One sidecar serves one rank of one replica: scrapers label it.
var series = []struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *state) uint64
}{
	{"warmroute_kvsub_blocks", "Blocks of the replica, by the sidecar's own record.", gauge, func(s *state) uint64 { return uint64(s.reports.Blocks) }},
	{"warmroute_kvsub_dropped_blocks_total", "Blocks not reported: too many waited for their parent.", counter, func(s *state) uint64 { return s.reports.Dropped }},
	{"warmroute_kvsub_behind", "1 while all blocks must be reported again.", gauge, func(s *state) uint64 { return bit(s.reports.Behind) }},
	{"warmroute_kvsub_flushes_total", "Reports of changes that the index accepted.", counter, func(s *state) uint64 { return s.reports.Flushes }},
	{"warmroute_kvsub_resyncs_total", "Of these, reports of all blocks.", counter, func(s *state) uint64 { return s.reports.Resyncs }},
	{"warmroute_kvsub_report_errors_total", "Calls of the index that failed.", counter, func(s *state) uint64 { return s.reports.Errors }},
	{"warmroute_kvsub_stats_reports_total", "Reports of the replica's stats that the index accepted.", counter, func(s *state) uint64 { return s.stats }},
	{"warmroute_kvsub_stats_errors_total", "Scrapes of the replica, or reports of its stats, that failed.", counter, func(s *state) uint64 { return s.statsBad }},
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	kvevents.Describe(ch)
	for i := range series {
		ch <- prometheus.NewDesc(series[i].name, series[i].help, nil, nil)
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.state()
	s.events.Collect(ch, g.holder.Replica, g.holder.Rank)
	for i := range series {
		m := &series[i]
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, nil, nil), m.kind, float64(m.value(&s)))
	}
}

// listen takes the address of the admin pages: /metrics, /healthz, /readyz.
func (g gauges) listen(addr string, log *slog.Logger) (*admin.Server, error) {
	reg := telemetry.NewRegistry("kvsub", telemetry.ReadBuild(), nil, g.limit)
	if err := reg.Register(g); err != nil {
		return nil, err
	}
	return admin.Listen(admin.Options{Listen: addr, Ready: g.ready, Metrics: reg, Logger: log})
}
