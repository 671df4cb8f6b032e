package xds

import "github.com/prometheus/client_golang/prometheus"

// metrics counts updates to Envoys and their answers.
type metrics struct {
	versions prometheus.Counter
	sent     *prometheus.CounterVec
	refused  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, p *Publisher) *metrics {
	m := &metrics{
		versions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_xds_versions_total", Help: "States published to Envoys after changes."}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_xds_updates_total", Help: "Updates sent to Envoys: listener, routes, clusters, endpoints."}, []string{"type"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_xds_refused_total", Help: "Updates that an Envoy refused; it keeps its former state."}, []string{"type"}),
	}
	reg.MustRegister(m.versions, m.sent, m.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "warmroute_xds_envoys", Help: "Connected Envoys that follow the fleet."}, func() float64 { return float64(p.acks.connected()) }),
	)
	return m
}
