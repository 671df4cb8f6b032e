package kube

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The two watched resources, as metrics name them.
const (
	resourcePool = "pool"
	resourcePods = "pods"
)

// Status is the state of a source, for readiness and metrics. It is empty until a source
// uses it. It is safe for concurrent use.
type Status struct {
	now      func() time.Time
	requests *prometheus.CounterVec // resource, verb, result

	mu       sync.Mutex
	pool     string // "namespace/name"; "": there is no source
	watches  map[string]*contact
	poolWhy  string // why the pool cannot be used; "" when it can
	listed   bool   // the fleet has been given a list
	ready    int    // pods
	notReady int
}

// contact is the state of the requests for one resource.
type contact struct {
	up    bool
	why   string // error of the last request; "" = it succeeded
	since time.Time
}

// NewStatus returns a status that no source uses yet.
func NewStatus() *Status {
	return &Status{
		now: time.Now, watches: map[string]*contact{resourcePool: {}, resourcePods: {}},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_kubernetes_requests_total", Help: "Requests to the Kubernetes API: ok, or the error."},
			[]string{"resource", "verb", "result"}),
	}
}

// use names the pool; from now on the status is not empty.
func (s *Status) use(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool, s.poolWhy = pool, "it has not been listed yet"
}

// asked records the end of a request; result is "ok" or one of a closed set, err is the
// cause. It reports whether the result has changed.
func (s *Status) asked(resource, verb, result string, err error) (changed bool) {
	s.requests.WithLabelValues(resource, verb, result).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.watches[resource]
	if err == nil {
		changed = !c.up
		*c = contact{up: true}
		return changed
	}
	if changed = c.why == "" || c.up; changed {
		c.since = s.now()
	}
	c.up, c.why = false, fmt.Sprintf("%s %s: %s", verb, resource, shorten(err.Error()))
	return changed
}

// setPoolError records why the pool is unusable, "" when it is usable.
func (s *Status) setPoolError(why string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.poolWhy != why
	s.poolWhy = why
	return changed
}

// setPods records that the fleet has a list, and its numbers of pods.
func (s *Status) setPods(ready, notReady int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.ready, s.notReady = true, ready, notReady
}

// Ready returns the reason why there is no list of replicas yet, nil once there has been
// one or without a configured pool.
func (s *Status) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool == "" || s.listed {
		return nil
	}
	why := s.problems()
	if len(why) == 0 {
		why = []string{fmt.Sprintf("InferencePool %s: its pods have not been listed yet", s.pool)}
	}
	return errors.New(strings.Join(why, "; "))
}

// Notes lists problems while the replicas listed last are in use, nil without
// problems.
func (s *Status) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool == "" || !s.listed {
		return nil
	}
	notes := s.problems()
	for i := range notes {
		notes[i] += " (the replicas listed last stay)"
	}
	return notes
}

// problems needs s.mu.
func (s *Status) problems() []string {
	var out []string
	for _, resource := range []string{resourcePool, resourcePods} {
		if c := s.watches[resource]; c.why != "" {
			out = append(out, fmt.Sprintf("Kubernetes API, for %v: %s", s.now().Sub(c.since).Round(time.Second), c.why))
		}
	}
	if s.poolWhy != "" {
		out = append(out, fmt.Sprintf("InferencePool %s: %s", s.pool, s.poolWhy))
	}
	return out
}

var (
	descUp     = prometheus.NewDesc("warmroute_kubernetes_up", "1 while the Kubernetes API answers.", []string{"resource"}, nil)
	descUsable = prometheus.NewDesc("warmroute_kubernetes_pool_usable", "1 while the InferencePool exists and is usable.", nil, nil)
	descPods   = prometheus.NewDesc("warmroute_kubernetes_pods", "Pods of the InferencePool, replicas or not.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Status) Describe(ch chan<- *prometheus.Desc) {
	s.requests.Describe(ch)
	ch <- descUp
	ch <- descUsable
	ch <- descPods
}

// Collect implements prometheus.Collector.
func (s *Status) Collect(ch chan<- prometheus.Metric) {
	s.requests.Collect(ch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool == "" {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for resource, c := range s.watches {
		gauge(descUp, flag(c.up), resource)
	}
	gauge(descUsable, flag(s.poolWhy == ""))
	gauge(descPods, float64(s.ready), "ready")
	gauge(descPods, float64(s.notReady), "not_ready")
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// shorten bounds the part of a server's answer in a sentence.
func shorten(s string) string {
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return s
}
