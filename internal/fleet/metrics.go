package fleet

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts the fleet's own work. Collection reads the values that replicas
// report from the snapshot, so a replica that is gone leaves no series behind.
type metrics struct{ sourceFailures *prometheus.CounterVec }

func newMetrics(to prometheus.Registerer, f *Fleet) (*metrics, error) {
	m := &metrics{
		sourceFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_fleet_source_failures_total", Help: "Failures of a source of addresses; its last list stays."}, []string{"source"}),
	}
	if to == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.sourceFailures, &replicaCollector{f}} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// replicaCollector reports the snapshot.
type replicaCollector struct{ fleet *Fleet }

var (
	byReplica = []string{"replica"}
	byRank    = []string{"replica", "rank"}

	descReplicas = prometheus.NewDesc("warmroute_fleet_replicas", "Listed replicas, ready or not.", []string{"state"}, nil)
	descModel    = prometheus.NewDesc("warmroute_fleet_model_replicas", "Replicas of a base model, ready or not.", []string{"model", "state"}, nil)
	descReady    = prometheus.NewDesc("warmroute_replica_ready", "1 if the replica is offered to requests.", byReplica, nil)
	descInfo     = prometheus.NewDesc("warmroute_replica_info", "1; the name of a replica, e.g. its pod.", []string{"replica", "name"}, nil)
	descRequests = prometheus.NewDesc("warmroute_replica_requests", "Requests by the replica's count: running, waiting.", []string{"replica", "rank", "state"}, nil)
	descUsage    = prometheus.NewDesc("warmroute_replica_kv_cache_usage_ratio", "Share of KV cache blocks in use, by the replica.", byRank, nil)
	descCached   = prometheus.NewDesc("warmroute_replica_prefix_cache_tokens_total", "Prompt tokens in the replica's prefix cache: queried, hit.", []string{"replica", "rank", "tokens"}, nil)
	descRefused  = prometheus.NewDesc("warmroute_replica_event_sources_refused", "1 if reported event sources are not used: on another host, of another replica, or too many.", byReplica, nil)
)

func (c *replicaCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descReplicas, descModel, descReady, descInfo, descRequests, descUsage, descCached, descRefused} {
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
			gauge(descRequests, l.Running, r.Addr, rank, "running")
			gauge(descRequests, l.Waiting, r.Addr, rank, "waiting")
			gauge(descUsage, l.KVUsage, r.Addr, rank)
			counter(descCached, l.PrefixQueries, r.Addr, rank, "queried")
			counter(descCached, l.PrefixHits, r.Addr, rank, "hit")
		}
	}
}
