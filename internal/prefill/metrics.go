package prefill

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of legs.
type Metrics struct {
	legs *prometheus.CounterVec
	took prometheus.Histogram
}

// The outcomes of a leg: the closed set of a metric's label.
const (
	outcomeDone      = "done"
	outcomeNoParams  = "no_params"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
	outcomeSlow      = "slow"
	outcomeBusy      = "busy"
	outcomeCancelled = "cancelled"
)

// NewMetrics registers the metrics of legs with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		legs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_prefill_legs_total", Help: "Prefill legs, by outcome: done, no_params, refused (4xx), failed, slow, busy (not sent), cancelled (the request ended)."}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmroute_prefill_leg_seconds", Help: "Time of a done prefill leg, from decision to answer.",
			Buckets: []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60}}),
	}
	for _, o := range []string{outcomeDone, outcomeNoParams, outcomeRefused, outcomeFailed, outcomeSlow, outcomeBusy, outcomeCancelled} {
		m.legs.WithLabelValues(o)
	}
	reg.MustRegister(m.legs, m.took)
	return m
}

func (m *Metrics) ended(err error, took time.Duration) {
	if m == nil {
		return
	}
	o := outcome(err)
	m.legs.WithLabelValues(o).Inc()
	if o == outcomeDone {
		m.took.Observe(took.Seconds())
	}
}

func outcome(err error) string {
	switch {
	case err == nil:
		return outcomeDone
	case errors.Is(err, ErrBusy):
		return outcomeBusy
	case errors.Is(err, ErrRefused):
		return outcomeRefused
	case errors.Is(err, ErrNoParams):
		return outcomeNoParams
	case errors.Is(err, context.DeadlineExceeded):
		return outcomeSlow
	case errors.Is(err, context.Canceled):
		return outcomeCancelled
	}
	return outcomeFailed
}
