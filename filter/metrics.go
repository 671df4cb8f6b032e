package filter

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the filter's metrics.
type Metrics struct {
	reasons   map[Reason]prometheus.Counter
	took      prometheus.Histogram
	sources   *prometheus.CounterVec
	predicted *prometheus.CounterVec
	streams   prometheus.Gauge
	elsewhere prometheus.Counter
	panics    prometheus.Counter
	anyway    prometheus.Counter
}

// NewMetrics registers the filter's metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_decisions_total", Help: "Requests seen, by the reason code of their decision."}, []string{"reason"})
	m := &Metrics{
		reasons: map[Reason]prometheus.Counter{},
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmroute_decision_seconds", Help: "Time from a complete request body to its decision.",
			Buckets: []float64{5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5}}),
		sources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_token_source_total", Help: "Requests whose token ids were known, by where they came from."}, []string{"source"}),
		predicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_predicted_cached_tokens_total", Help: "Prompt tokens predicted to be cached on the replica that was named."}, []string{"replica"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warmroute_streams", Help: "Requests whose ext_proc stream is open."}),
		elsewhere: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_served_elsewhere_total", Help: "Hinted requests that Envoy served on another replica than the first named."}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_stream_panics_total", Help: "Streams ended by a contained defect outside a decision; Envoy then goes on without a hint."}),
		anyway: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_picked_anyway_total", Help: "Requests that could not be judged and were given a ready replica because always_pick is on."}),
	}
	for _, r := range Reasons() {
		m.reasons[r] = decisions.WithLabelValues(string(r))
	}
	reg.MustRegister(decisions, m.took, m.sources, m.predicted, m.streams, m.elsewhere, m.panics, m.anyway)
	return m
}

// decided counts a decision.
func (m *Metrics) decided(rec *Record) {
	m.reasons[rec.Reason].Inc()
	if rec.Took > 0 {
		m.took.Observe(float64(rec.Took) / float64(time.Second))
	}
	if rec.Source != "" {
		m.sources.WithLabelValues(rec.Source).Inc()
	}
	if rec.Predicted > 0 {
		first, _, _ := strings.Cut(rec.Chosen, ",")
		m.predicted.WithLabelValues(first).Add(float64(rec.Predicted))
	}
}

// served compares the replica that was named first with the one that served.
func (m *Metrics) served(d *Decision, addr string) {
	first, _, _ := strings.Cut(d.Destination, ",")
	if first != "" && first != addr {
		m.elsewhere.Inc()
	}
}

// Forget drops the series of a replica that left.
func (m *Metrics) Forget(replica string) { m.predicted.DeleteLabelValues(replica) }
