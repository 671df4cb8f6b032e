package decision

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descRecent = prometheus.NewDesc("warmroute_pressure_recent",
		"Decisions within a minute in which a load guard overrode a hot match; with peers, of all routers. For autoscalers.", []string{"model"}, nil)
	descCapacity = prometheus.NewDesc("warmroute_history_capacity_tokens",
		"Tokens that a rank's cache is taken to have room for, where a history models it; learned: 1 if not named by the replica.", []string{"replica", "rank", "learned"}, nil)
	descSplits = prometheus.NewDesc("warmroute_split_decisions_total",
		"Requests whose prompt another replica might compute, by decision.", []string{"reason"}, nil)
	descMoved = prometheus.NewDesc("warmroute_split_moved_tokens_total",
		"Tokens whose KV cache replicas took over from others.", nil, nil)
	descLive = prometheus.NewDesc("warmroute_live_sessions",
		"Sessions at work on a rank; absent while sessions.share is 0, or its speed or cache size is not known.", []string{"replica", "rank"}, nil)
	descUnheld = prometheus.NewDesc("warmroute_unheld_requests_total",
		"Requests that lacked room beside live sessions and were not held.", nil, nil)
)

// Collectors returns the decider's metrics: its own, and a histogram of split requests.
func (d *Decider) Collectors() []prometheus.Collector {
	return []prometheus.Collector{d, d.splits.phases}
}

// Describe implements prometheus.Collector.
func (d *Decider) Describe(ch chan<- *prometheus.Desc) {
	ch <- descRecent
	ch <- descCapacity
	ch <- descSplits
	ch <- descMoved
	ch <- descLive
	ch <- descUnheld
}

// Collect implements prometheus.Collector.
func (d *Decider) Collect(ch chan<- prometheus.Metric) {
	for _, s := range d.pressure.All(d.now()) {
		ch <- prometheus.MustNewConstMetric(descRecent, prometheus.GaugeValue, float64(s.Recent), s.Model)
	}
	ch <- prometheus.MustNewConstMetric(descUnheld, prometheus.CounterValue, float64(d.unheld.Load()))
	for at, c := range d.history.All {
		if s, ok := d.sessions.See(c, d.now()); ok {
			ch <- prometheus.MustNewConstMetric(descLive, prometheus.GaugeValue, float64(s.Live), at.Replica, strconv.Itoa(at.Rank))
		}
		if !c.InUse() {
			continue
		}
		tokens, learned := c.Capacity()
		label := map[bool]string{true: "1", false: "0"}[learned]
		ch <- prometheus.MustNewConstMetric(descCapacity, prometheus.GaugeValue, float64(tokens), at.Replica, strconv.Itoa(at.Rank), label)
	}
	for i, why := range splitReasons {
		ch <- prometheus.MustNewConstMetric(descSplits, prometheus.CounterValue, float64(d.splits.by[i].Load()), string(why))
	}
	ch <- prometheus.MustNewConstMetric(descMoved, prometheus.CounterValue, float64(d.splits.moved.Load()))
}

func newPhases() *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "warmroute_split_phase_seconds", Help: "Times of split requests: prefill, from the decision until the prompt is computed, by its event or else its answer; move, until its KV cache is on the replica that answers.",
		Buckets: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60}}, []string{"phase"})
	v.WithLabelValues(phasePrefill)
	v.WithLabelValues(phaseMove)
	return v
}
