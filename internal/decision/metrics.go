package decision

import "github.com/prometheus/client_golang/prometheus"

var (
	descRecent = prometheus.NewDesc("warmroute_pressure_recent",
		"Decisions within pressure_window_seconds, since the last reset, in which a load guard overrode a hot match; with peers, those of all routers. For autoscalers.", []string{"model"}, nil)
	descDisturbed = prometheus.NewDesc("warmroute_pressure_disturbed_total",
		"Decisions in which a load guard overrode a hot match; with peers, those of all routers since this one started.", []string{"model"}, nil)
	descSplits = prometheus.NewDesc("warmroute_split_decisions_total",
		"Requests whose prompt another replica might have computed, by whether it did.", []string{"reason"}, nil)
	descMoved = prometheus.NewDesc("warmroute_split_moved_tokens_total",
		"Tokens of prompts whose KV cache replicas took over from others.", nil, nil)
)

// Describe implements prometheus.Collector.
func (d *Decider) Describe(ch chan<- *prometheus.Desc) {
	ch <- descRecent
	ch <- descDisturbed
	ch <- descSplits
	ch <- descMoved
}

// Collect implements prometheus.Collector.
func (d *Decider) Collect(ch chan<- prometheus.Metric) {
	for _, s := range d.pressure.All(d.now()) {
		ch <- prometheus.MustNewConstMetric(descRecent, prometheus.GaugeValue, float64(s.Recent), s.Model)
		ch <- prometheus.MustNewConstMetric(descDisturbed, prometheus.CounterValue, float64(s.Total), s.Model)
	}
	for i, why := range splitReasons {
		ch <- prometheus.MustNewConstMetric(descSplits, prometheus.CounterValue, float64(d.splits.by[i].Load()), string(why))
	}
	ch <- prometheus.MustNewConstMetric(descMoved, prometheus.CounterValue, float64(d.splits.moved.Load()))
}
