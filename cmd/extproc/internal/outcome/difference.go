package outcome

import "github.com/prometheus/client_golang/prometheus"

// differenceBuckets are symmetric around the bucket of 0, which holds the exact predictions
// alone.
var differenceBuckets = []float64{-4097, -513, -65, -1, 0, 64, 512, 4096}

// Differences counts how far predictions were from what replicas counted.
type Differences struct {
	cached  *prometheus.HistogramVec
	prompts *prometheus.CounterVec
}

// NewDifferences registers the metrics with reg.
func NewDifferences(reg prometheus.Registerer) *Differences {
	d := &Differences{
		cached: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "warmroute_prediction_difference_tokens", Buckets: differenceBuckets,
			Help: "Cached prompt tokens that an answer reports, minus those predicted: 0 is exact, below it the prediction was too high."}, []string{"model", "replica"}),
		prompts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_prompt_length_differs_total",
			Help: "Answers with another number of prompt tokens than the router's."}, []string{"replica"}),
	}
	reg.MustRegister(d.cached, d.prompts)
	return d
}

// Count counts an answer of the first named replica, which serves model. If another one
// computed the prompt, the answer does not say what the first had cached.
func (d *Differences) Count(a *Answer, model string) {
	if a.Usage.State == UsageComplete && a.Prefill == "" {
		d.cached.WithLabelValues(model, a.Replica).Observe(float64(a.Usage.Cached - a.Predicted))
	}
	if a.Usage.Known() && a.Reported > 0 && a.Usage.Prompt != a.Prompt {
		d.prompts.WithLabelValues(a.Replica).Inc()
	}
}

// Forget drops the series of a replica that left.
func (d *Differences) Forget(replica string) {
	d.cached.DeletePartialMatch(prometheus.Labels{"replica": replica})
	d.prompts.DeleteLabelValues(replica)
}
