package load

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision/policy"
)

var (
	descSpeed = prometheus.NewDesc("warmroute_replica_slowness",
		"Measured first-token time divided by the modelled one.", []string{"replica", "rank"}, nil)
	descLag = prometheus.NewDesc("warmroute_first_token_news_seconds",
		"Learned delay of KV events that report first tokens.", []string{"replica", "rank"}, nil)
	descLoad = prometheus.NewDesc("warmroute_load_token_seconds",
		"Learned time to load a token from cpu, storage, shared.", []string{"replica", "rank", "place"}, nil)
	descInFlight = prometheus.NewDesc("warmroute_in_flight_requests",
		"Hinted requests in flight; one for several answers counts for each.", []string{"replica", "rank"}, nil)
	descPending = prometheus.NewDesc("warmroute_pending_prefill_seconds",
		"Expected prefill of hinted requests without a first token. For autoscalers.", []string{"model", "replica", "rank"}, nil)
)

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descSpeed, descLag, descLoad, descInFlight, descPending} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	for h, a := range l.All() {
		gauge := func(desc *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, h.Replica, strconv.Itoa(h.Rank))
		}
		gauge(descInFlight, float64(a.InFlight()))
		model := ""
		if l.Model != nil {
			model = l.Model(h.Replica)
		}
		ch <- prometheus.MustNewConstMetric(descPending, prometheus.GaugeValue, a.Pending(), model, h.Replica, strconv.Itoa(h.Rank))
		if speed := a.Speed(); speed > 0 {
			gauge(descSpeed, speed)
			gauge(descLag, a.pace.lag.Load())
		}
		for _, t := range policy.Lower {
			if a.LoadedTokens(t) > 0 {
				ch <- prometheus.MustNewConstMetric(descLoad, prometheus.GaugeValue, a.LoadTime(t), h.Replica, strconv.Itoa(h.Rank), t.String())
			}
		}
	}
}
