package feed

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/kvevents"
)

var trustDesc = prometheus.NewDesc("warmroute_prediction_trust",
	"1 for the trust in predictions: exact or inexact; /debug/replicas gives the reason.", []string{"replica", "rank", "trust"}, nil)

var scopesDesc = prometheus.NewDesc("warmroute_index_scopes_refused_total",
	"Times that blocks were not indexed because of index.max_scopes.", []string{"replica"}, nil)

var sourcesDesc = prometheus.NewDesc("warmroute_kv_sources",
	"Ready replicas by their KV events: sidecar, off (no_events), refused, other (engine), none, paused, connecting, following.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (f *Feed) Describe(ch chan<- *prometheus.Desc) {
	kvevents.Describe(ch)
	ch <- trustDesc
	ch <- scopesDesc
	ch <- sourcesDesc
}

// Collect implements prometheus.Collector: it reads every rank's status.
func (f *Feed) Collect(ch chan<- prometheus.Metric) {
	all := f.Status()
	for _, r := range all {
		ch <- prometheus.MustNewConstMetric(scopesDesc, prometheus.CounterValue, float64(r.Scopes.Refused), r.Addr)
		for _, rank := range r.Ranks {
			if g := rank.Groups; g != nil {
				ch <- prometheus.MustNewConstMetric(trustDesc, prometheus.GaugeValue, 1, r.Addr, strconv.Itoa(rank.Rank), g.Trust.String())
			}
			rank.Status.Collect(ch, r.Addr, rank.Rank)
		}
	}
	count := map[State]int{}
	f.each(all, func(_ *fleet.Replica, _ Replica, state State) { count[state]++ })
	for _, state := range States() {
		ch <- prometheus.MustNewConstMetric(sourcesDesc, prometheus.GaugeValue, float64(count[state]), string(state))
	}
}
