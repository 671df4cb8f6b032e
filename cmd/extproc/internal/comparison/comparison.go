package comparison

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/cmd/extproc/internal/outcome"
)

// Group is one side of the comparison. The set is closed.
type Group int

// The groups.
const (
	Hinted Group = iota
	Unhinted

	groups
)

// String returns the group's name in metrics and pages.
func (g Group) String() string { return [groups]string{"hinted", "unhinted"}[g] }

// groupOf returns the group of an answer, and whether it has one.
func groupOf(a *outcome.Answer) (Group, bool) {
	switch {
	case a.Model == "":
		return 0, false // nothing was decided
	case a.Hint != "":
		return Hinted, true
	case a.Withheld.InTrial():
		return Unhinted, true
	}
	return 0, false
}

// mostModels bounds the models that are compared.
const mostModels = 256

// Comparison counts answers by group and base model. Make it with New.
type Comparison struct {
	base  func(model string) string
	drawn func(seq uint64) bool
	now   func() time.Time

	requests, tokens *prometheus.CounterVec
	times            *prometheus.HistogramVec

	mu     sync.Mutex
	since  time.Time
	models map[string]*[groups]side // by base model
}

// side is one group of one model.
type side struct {
	sums   // since the last Restart
	series series
}

// series are the metrics of a group, found once.
type series struct {
	answered, failed, prompt, cached prometheus.Counter
	firstByte, duration              prometheus.Observer
}

// buckets reach from a cached prompt's first token to a long answer.
var buckets = []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300}

// New returns an empty comparison. base returns the base model of a served model's name,
// "" for a name that no replica serves. drawn reports whether the usage of the answer to the
// decision of that number was read by chance: answers that are read because their replica is
// suspect, or new, would make the groups differ.
func New(reg prometheus.Registerer, base func(model string) string, drawn func(seq uint64) bool, now func() time.Time) *Comparison {
	labels := []string{"group", "model"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels, more...))
	}
	c := &Comparison{
		base: base, drawn: drawn, now: now, since: now(), models: map[string]*[groups]side{},
		requests: counter("warmroute_compared_requests_total",
			"Requests for which the router had a replica, by whether Envoy got the hint (hinted, unhinted), and result: answered, failed (no response, or 500 and above).", "result"),
		tokens: counter("warmroute_compared_tokens_total",
			"Tokens of compared requests, where Envoy has read the usage: prompt, cached.", "tokens"),
		times: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "warmroute_compared_seconds",
			Help:    "Time of compared requests with status 200 until: first_byte of the answer's body, end.",
			Buckets: buckets}, append(labels, "until")),
	}
	reg.MustRegister(c.requests, c.tokens, c.times)
	return c
}

// Restart empties the page: the settings of the trial have changed.
func (c *Comparison) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = c.now()
	for _, sides := range c.models {
		for g := range sides {
			sides[g].sums = sums{}
		}
	}
}

// Add counts an answer.
func (c *Comparison) Add(a *outcome.Answer) {
	g, ok := groupOf(a)
	if !ok {
		return
	}
	base := c.base(a.Model)
	if base == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sides := c.of(base); sides != nil {
		sides[g].add(a, a.Usage.State == outcome.UsageComplete && c.drawn(a.Decision))
	}
}

// of returns both groups of a base model, nil beyond mostModels.
func (c *Comparison) of(base string) *[groups]side {
	if sides := c.models[base]; sides != nil || len(c.models) >= mostModels {
		return sides
	}
	sides := new([groups]side)
	for g := range groups {
		name := g.String()
		sides[g].series = series{
			answered: c.requests.WithLabelValues(name, base, "answered"), failed: c.requests.WithLabelValues(name, base, "failed"),
			prompt: c.tokens.WithLabelValues(name, base, "prompt"), cached: c.tokens.WithLabelValues(name, base, "cached"),
			firstByte: c.times.WithLabelValues(name, base, "first_byte"), duration: c.times.WithLabelValues(name, base, "end"),
		}
	}
	c.models[base] = sides
	return sides
}

// add counts an answer, whose usage was read by chance or not.
func (s *side) add(a *outcome.Answer, read bool) {
	s.requests++
	if failed(a) {
		s.failed++
		s.series.failed.Inc()
		return
	}
	s.series.answered.Inc()
	if read {
		s.read, s.prompt, s.cached = s.read+1, s.prompt+a.Usage.Prompt, s.cached+a.Usage.Cached
		s.series.prompt.Add(float64(a.Usage.Prompt))
		s.series.cached.Add(float64(a.Usage.Cached))
	}
	if timed(a) {
		s.firstByte.add(a.FirstByte)
		s.duration.add(a.Duration)
		s.series.firstByte.Observe(a.FirstByte.Seconds())
		s.series.duration.Observe(a.Duration.Seconds())
	}
}

// failed reports whether nobody answered, or a server's error came.
func failed(a *outcome.Answer) bool {
	return a.Status == 0 || a.Status >= http.StatusInternalServerError
}

// timed reports whether the times of an answer count: an error is quick.
func timed(a *outcome.Answer) bool {
	return a.Status == http.StatusOK && a.FirstByte > 0 && a.Duration > 0
}
