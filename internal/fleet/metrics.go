package fleet

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts the fleet's own work. Collection reads the values that replicas
// report from the snapshot, so a replica that is gone leaves no series behind.
type metrics struct {
	joins          prometheus.Counter
	leaves         *prometheus.CounterVec
	scrapes        *prometheus.CounterVec
	scrapeSeconds  prometheus.Histogram
	sourceFailures *prometheus.CounterVec
	ignored        prometheus.Counter
}

func newMetrics(to prometheus.Registerer, f *Fleet) (*metrics, error) {
	m := &metrics{
		joins: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_fleet_joins_total", Help: "Replicas that became ready, counted each time."}),
		leaves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_fleet_leaves_total", Help: "Replicas that were ready and left, by reason."}, []string{"reason"}),
		scrapes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_fleet_scrapes_total", Help: "Reads of replicas' /metrics, by result: ok, or the error."}, []string{"result"}),
		scrapeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmroute_fleet_scrape_duration_seconds", Help: "Time to read one replica's /metrics.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}}),
		sourceFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_fleet_source_failures_total", Help: "Failures of a source of replica addresses; its last list stays."}, []string{"source"}),
		ignored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_fleet_ignored_addresses_total", Help: "Addresses from a source that cannot be used or exceed max_replicas, counted per list."}),
	}
	if to == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.joins, m.leaves, m.scrapes, m.scrapeSeconds, m.sourceFailures, m.ignored, &replicaCollector{f}} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) scraped(err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = reasonOf(err)
	}
	m.scrapes.WithLabelValues(result).Inc()
	m.scrapeSeconds.Observe(took.Seconds())
}

// replicaCollector reports the snapshot.
type replicaCollector struct{ fleet *Fleet }

var (
	byReplica = []string{"replica"}
	byRank    = []string{"replica", "rank"}

	descReplicas = prometheus.NewDesc("warmroute_fleet_replicas", "Listed replicas, by whether they are ready.", []string{"state"}, nil)
	descModel    = prometheus.NewDesc("warmroute_fleet_model_replicas", "Replicas of a base model, by whether they are ready.", []string{"model", "state"}, nil)
	descReady    = prometheus.NewDesc("warmroute_replica_ready", "1 if the replica is offered to requests.", byReplica, nil)
	descInfo     = prometheus.NewDesc("warmroute_replica_info", "1; the name of a replica that has one, e.g. its pod.", []string{"replica", "name"}, nil)
	descRunning  = prometheus.NewDesc("warmroute_replica_running_requests", "Requests running, as the replica reports them.", byRank, nil)
	descWaiting  = prometheus.NewDesc("warmroute_replica_waiting_requests", "Requests waiting, as the replica reports them.", byRank, nil)
	descUsage    = prometheus.NewDesc("warmroute_replica_kv_cache_usage_ratio", "Share of KV cache blocks in use, as the replica reports it.", byRank, nil)
	descQueries  = prometheus.NewDesc("warmroute_replica_prefix_cache_queried_tokens_total", "Prompt tokens the replica has looked up in its prefix cache.", byRank, nil)
	descHits     = prometheus.NewDesc("warmroute_replica_prefix_cache_hit_tokens_total", "Prompt tokens the replica has found in its prefix cache.", byRank, nil)
	descRefused  = prometheus.NewDesc("warmroute_replica_event_sources_refused", "1 if the replica reports event sources that are not used: on another host, of another replica, or too many.", byReplica, nil)
	descAge      = prometheus.NewDesc("warmroute_replica_load_age_seconds", "Age of the replica's last load report.", byReplica, nil)
)

func (c *replicaCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descReplicas, descModel, descReady, descInfo, descRunning, descWaiting, descUsage, descQueries, descHits, descRefused, descAge} {
		ch <- d
	}
}

func (c *replicaCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.fleet.Snapshot()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(descReplicas, float64(s.Ready), "ready")
	gauge(descReplicas, float64(len(s.Replicas)-s.Ready), "not_ready")
	for _, m := range s.Models() {
		gauge(descModel, float64(m.Ready), m.Base, "ready")
		gauge(descModel, float64(m.All-m.Ready), m.Base, "not_ready")
	}
	for _, r := range s.Replicas {
		if r.Name != "" {
			gauge(descInfo, 1, r.Addr, r.Name)
		}
		if !r.Ready {
			gauge(descReady, 0, r.Addr)
			continue
		}
		gauge(descReady, 1, r.Addr)
		refused := 0.0
		if r.EventsRefused != "" {
			refused = 1
		}
		gauge(descRefused, refused, r.Addr)
		for i := range r.Load {
			l := &r.Load[i]
			rank := strconv.Itoa(l.Rank)
			gauge(descRunning, l.Running, r.Addr, rank)
			gauge(descWaiting, l.Waiting, r.Addr, rank)
			gauge(descUsage, l.KVUsage, r.Addr, rank)
			counter(descQueries, l.PrefixQueries, r.Addr, rank)
			counter(descHits, l.PrefixHits, r.Addr, rank)
		}
		if len(r.Load) > 0 {
			gauge(descAge, time.Since(r.Load[0].At).Seconds(), r.Addr)
		}
	}
}
