package filter

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warmroute/internal/bound"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/telemetry"
)

// Metrics are the filter's metrics.
type Metrics struct {
	models    *telemetry.ByModel[modelSeries] // by base model
	withheld  *prometheus.CounterVec
	phases    [phases]prometheus.Observer
	stream    prometheus.Histogram
	sources   *prometheus.CounterVec
	predicted *prometheus.CounterVec
	matches   map[policy.Source]prometheus.Counter
	totals    sync.Map // replica → *total
	streams   prometheus.Gauge
	elsewhere prometheus.Counter
	panics    prometheus.Counter
	bodies    bound.Pool // bytes of the bodies that are held or worked on
	held      *heldMetrics
}

// modelSeries are the series of a model.
type modelSeries struct {
	reasons         map[decision.Reason]prometheus.Counter
	took            prometheus.Observer
	tokens, seconds prometheus.Counter // of prefill that is saved
	loaded          prometheus.Counter // tokens below the GPU

	classes [len(decision.Classes)]atomic.Int64 // decisions about requests that are ours, in the order of decision.Classes
}

// total is the sum of the predictions for one replica.
type total struct {
	tokens  atomic.Int64
	counter prometheus.Counter
}

// phase is a part of a decision with a time of its own.
type phase int

const (
	phaseParse  phase = iota // reading the body
	phaseTokens              // finding the token ids, waiting for a replica included
	phasePlace               // hashing, looking up, ranking

	phases
)

// String returns the phase's label.
func (p phase) String() string { return [phases]string{"parse", "tokens", "place"}[p] }

// decisionBuckets reach from a body that is refused at once to a wait for a
// replica's token ids.
var decisionBuckets = []float64{5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5}

// NewMetrics registers the filter's metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_decisions_total", Help: "Requests by reason code and base model, if it is known."}, []string{"model", "reason"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "warmroute_decision_seconds", Help: "Time from a complete body to its decision.", Buckets: decisionBuckets}, []string{"model"})
	savedTokens := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_saved_prefill_tokens_total", Help: "Prompt tokens of hinted requests predicted to be cached where they are computed."}, []string{"model"})
	savedSeconds := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_saved_prefill_seconds_total", Help: "Expected prefill time of saved tokens, at the replica's speed."}, []string{"model"})
	loaded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_predicted_loaded_tokens_total", Help: "Prompt tokens predicted to be loaded from below the GPU."}, []string{"model"})
	m := &Metrics{
		held: newHeldMetrics(reg),
		withheld: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_hints_withheld_total", Help: "Decisions whose hint Envoy did not get, by cause: opted_out, shadow, share."}, []string{"withheld", "reason"}),
		stream: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warmroute_extproc_seconds", Help: "Time of a request in the router, without waits for Envoy.",
			Buckets: decisionBuckets}),
		sources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_token_source_total", Help: "Requests with known token ids, by source."}, []string{"source"}),
		predicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_predicted_cached_tokens_total", Help: "Prompt tokens predicted to be cached where they are computed."}, []string{"replica"}),
		matches: map[policy.Source]prometheus.Counter{},
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warmroute_streams", Help: "Requests with an open ext_proc stream."}),
		elsewhere: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_served_elsewhere_total", Help: "Hinted requests that another replica than the first named served."}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warmroute_stream_panics_total", Help: "Streams that a defect ended; Envoy continues without a hint."}),
	}
	matches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_matches_total", Help: "Decisions that expect cached tokens, by how these are known: reported (by events), history (token ids were sent there), text."}, []string{"source"})
	byPhase := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "warmroute_decision_phase_seconds", Help: "Time of a decision's phases: parse, tokens, place.", Buckets: decisionBuckets}, []string{"phase"})
	for p := range phases {
		m.phases[p] = byPhase.WithLabelValues(p.String())
	}
	m.models = telemetry.NewByModel(func(model string) *modelSeries {
		s := &modelSeries{
			reasons: map[decision.Reason]prometheus.Counter{}, took: took.WithLabelValues(model),
			tokens: savedTokens.WithLabelValues(model), seconds: savedSeconds.WithLabelValues(model),
			loaded: loaded.WithLabelValues(model),
		}
		for _, r := range decision.Reasons() {
			s.reasons[r] = decisions.WithLabelValues(model, string(r))
		}
		return s
	})
	for _, r := range decision.Reasons() {
		for _, w := range decision.AllWithheld() {
			if r.Hint() {
				m.withheld.WithLabelValues(string(w), string(r)) // there from the start: requests make no series
			}
		}
	}
	for _, s := range policy.Sources() {
		m.matches[s] = matches.WithLabelValues(s.String())
	}
	bodies := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "warmroute_body_bytes", Help: "Bytes of bodies in work or held."}, func() float64 { return float64(m.bodies.Used()) })
	reg.MustRegister(bodies, decisions, m.withheld, took, savedTokens, savedSeconds, loaded, byPhase, m.stream, m.sources, m.predicted, matches, m.streams, m.elsewhere, m.panics)
	return m
}

// decided counts a decision for a request of a base model.
func (m *Metrics) decided(rec *decision.Record, base string, took *[phases]time.Duration) {
	of := m.models.Of(base)
	of.reasons[rec.Reason].Inc()
	if rec.Reason != decision.ReasonNotOurs {
		of.classes[slices.Index(decision.Classes[:], rec.Class())].Add(1)
	}
	if rec.Took > 0 {
		of.took.Observe(float64(rec.Took) / float64(time.Second))
	}
	for p, d := range took {
		if d > 0 {
			m.phases[p].Observe(float64(d) / float64(time.Second))
		}
	}
	if rec.Source != "" {
		m.sources.WithLabelValues(rec.Source).Inc()
	}
	if source := rec.Match.Source(); source != policy.NoSource {
		m.matches[source].Inc()
	}
	if rec.Withheld != "" {
		m.withheld.WithLabelValues(string(rec.Withheld), string(rec.Reason)).Inc()
		return // the predictions for a replica are of requests that were sent there
	}
	first := rec.First()
	m.expected(first, rec.Predicted)
	saved := rec.Predicted
	if s := &rec.Split; s.Reason == decision.SplitDone { // the other replica's match saves prefill
		m.expected(s.Prefill, s.Predicted)
		saved = s.Predicted
	}
	if saved > 0 {
		of.tokens.Add(float64(saved))
		of.seconds.Add(max(0, rec.Saved))
	}
	if n := rec.Match.Below(); n > 0 {
		of.loaded.Add(float64(n))
	}
}

// Decisions returns the numbers of decisions so far, by base model and class; the model is "" where
// none is known.
func (m *Metrics) Decisions() map[string]map[decision.Class]int64 {
	out := map[string]map[decision.Class]int64{}
	for model, of := range m.models.All() {
		out[model] = map[decision.Class]int64{}
		for i, class := range decision.Classes {
			if n := of.classes[i].Load(); n > 0 {
				out[model][class] = n
			}
		}
	}
	return out
}

// Spent returns the time that all requests so far have spent in the router, and their number.
func (m *Metrics) Spent() (seconds, requests float64) {
	var h dto.Metric
	if err := m.stream.Write(&h); err != nil {
		return 0, 0 // a histogram always can be written
	}
	return h.GetHistogram().GetSampleSum(), float64(h.GetHistogram().GetSampleCount())
}

// expected counts tokens that are predicted to be cached on a replica.
func (m *Metrics) expected(replica string, tokens int) {
	if tokens <= 0 {
		return
	}
	t := m.total(replica)
	t.tokens.Add(int64(tokens))
	t.counter.Add(float64(tokens))
}

func (m *Metrics) total(replica string) *total {
	if t, ok := m.totals.Load(replica); ok {
		return t.(*total)
	}
	t, _ := m.totals.LoadOrStore(strings.Clone(replica), &total{counter: m.predicted.WithLabelValues(replica)})
	return t.(*total)
}

// Predicted returns how many prompt tokens were predicted to be cached on a replica
// since it joined.
func (m *Metrics) Predicted(replica string) int64 {
	if t, ok := m.totals.Load(replica); ok {
		return t.(*total).tokens.Load()
	}
	return 0
}

// ServedElsewhere counts a hinted request that was not served by the replica
// named first.
func (m *Metrics) ServedElsewhere() { m.elsewhere.Inc() }

// served compares the replica that served with the replica named first.
func (m *Metrics) served(d *decision.Decision, addr string) {
	if first := d.First(); first != "" && first != addr {
		m.elsewhere.Inc()
	}
}

// Forget drops the series of a replica that left.
func (m *Metrics) Forget(replica string) {
	m.totals.Delete(replica)
	m.predicted.DeleteLabelValues(replica)
}
