package filter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descRecent = prometheus.NewDesc("warmroute_pressure_recent",
		"Decisions of the last minute, since the last reset, in which a load guard overrode a hot match. For autoscalers.", []string{"model"}, nil)
	descDisturbed = prometheus.NewDesc("warmroute_pressure_disturbed_total",
		"Decisions in which a load guard overrode a hot match.", []string{"model"}, nil)
	descSpeed = prometheus.NewDesc("warmroute_replica_slowness",
		"Learned first-token time of a rank over the modelled one; absent until something was learned.", []string{"replica", "rank"}, nil)
	descLag = prometheus.NewDesc("warmroute_first_token_news_seconds",
		"Learned delay of the news, by KV events, that a first token came.", []string{"replica", "rank"}, nil)
	descInFlight = prometheus.NewDesc("warmroute_in_flight_requests",
		"Hinted requests in flight, by the rank they were sent to.", []string{"replica", "rank"}, nil)
	descPending = prometheus.NewDesc("warmroute_pending_prefill_seconds",
		"Expected prefill of the hinted requests whose first token has not come.", []string{"replica", "rank"}, nil)
)

// Describe implements prometheus.Collector.
func (d *Decider) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descRecent, descDisturbed, descSpeed, descLag, descInFlight, descPending} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (d *Decider) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range d.pressure.All(d.now()) {
		gauge(descRecent, float64(s.Recent), s.Model)
		ch <- prometheus.MustNewConstMetric(descDisturbed, prometheus.CounterValue, float64(s.Total), s.Model)
	}
	for h, l := range d.ledger.All() {
		rank := strconv.Itoa(h.Rank)
		gauge(descInFlight, float64(l.InFlight()), h.Replica, rank)
		gauge(descPending, l.Pending(), h.Replica, rank)
		if speed := l.speed(); speed > 0 {
			gauge(descSpeed, speed, h.Replica, rank)
			gauge(descLag, l.late.Load(), h.Replica, rank)
		}
	}
}
