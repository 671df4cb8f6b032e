package indexrpc

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index/indexpb"
)

// metrics are the service's metrics. A model in a lookup becomes a label only
// if the index has it: a client cannot create series.
type metrics struct {
	s       *Server
	entries *prometheus.Desc
	calls   *prometheus.CounterVec
	latency *prometheus.HistogramVec

	mu     sync.Mutex
	models map[string]bool // ever held: a drained model's gauge goes to zero, not away
}

// otherModel labels lookups for models of which no block was ever held.
const otherModel = "(unknown)"

func newMetrics(s *Server) *metrics {
	return &metrics{s: s, models: make(map[string]bool),
		entries: prometheus.NewDesc("warmroute_index_entries", "Blocks that replicas reported, distinct per scope and memory.", []string{"model"}, nil),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "warmroute_lookup_route_calls_total",
			Help: "LookupRoute calls, by whether they gave a hint."}, []string{"model", "reason_code", "hint_used"}),
		// From 10 µs, a short prompt's answer, to 0.1 s, far beyond any budget.
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "warmroute_lookup_route_latency_seconds",
			Help: "Time of LookupRoute inside the server.", Buckets: prometheus.ExponentialBuckets(10e-6, 2.5, 11)}, []string{"model"}),
	}
}

// Collectors returns the service's metrics, for a registry.
func (s *Server) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics, s.metrics.calls, s.metrics.latency}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.entries }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for model, n := range m.held() {
		ch <- prometheus.MustNewConstMetric(m.entries, prometheus.GaugeValue, float64(n), model)
	}
}

// held counts entries per model, drained ones included. It reads all of them
// under one lock, so that two scrapes at once do not lose a model between them.
func (m *metrics) held() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]int)
	for scope, n := range m.s.x.Scopes() {
		if n > 0 {
			m.models[scope.Model] = true
			out[scope.Model] += n
		}
	}
	for model := range m.models {
		out[model] += 0
	}
	return out
}

func (m *metrics) looked(model string, out *indexpb.LookupRouteResponse, took time.Duration) {
	switch out.GetReason() {
	case indexpb.Reason_MATCHED, indexpb.Reason_NO_CANDIDATE, indexpb.Reason_NO_MATCH, indexpb.Reason_SCHEME_MISMATCH, indexpb.Reason_STALE:
	default:
		model = otherModel
	}
	m.calls.WithLabelValues(model, out.GetReason().String(), strconv.FormatBool(out.GetHint() == indexpb.Hint_USE_HINT)).Inc()
	m.latency.WithLabelValues(model).Observe(took.Seconds())
}
