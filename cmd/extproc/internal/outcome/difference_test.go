package outcome

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/render/testkit/must"
)

// TestDifferences: a difference needs the cached tokens, another length a prompt that the
// replica's events had reported; a replica that left leaves no series.
func TestDifferences(t *testing.T) {
	d := NewDifferences(prometheus.NewRegistry())
	a := Answer{Replica: "10.0.0.1:8000", Prediction: Prediction{Prompt: 100, Predicted: 64}, Usage: Usage{State: UsagePartial, Prompt: 101, Cached: 0}}
	if d.Count(&a, "m"); testutil.CollectAndCount(d.cached)+testutil.CollectAndCount(d.prompts) != 0 {
		t.Error("a usage without cached tokens has a difference, or a text's estimate a length")
	}
	a.Reported = 64
	if d.Count(&a, "m"); testutil.ToFloat64(d.prompts.WithLabelValues(a.Replica)) != 1 || testutil.CollectAndCount(d.cached) != 0 {
		t.Error("the other length is not counted")
	}
	a.Usage = Usage{State: UsageComplete, Prompt: 100, Cached: 80}
	if d.Count(&a, "m"); testutil.ToFloat64(d.prompts.WithLabelValues(a.Replica)) != 1 || testutil.CollectAndCount(d.cached) != 1 {
		t.Error("the difference is not counted, or an equal length is")
	}
	a.Prefill = "10.0.0.2:8000"
	if d.Count(&a, "m"); sampled(t, d) != 1 {
		t.Error("what another replica had cached is compared with the prediction for this one")
	}
	if d.Forget(a.Replica); testutil.CollectAndCount(d.cached)+testutil.CollectAndCount(d.prompts) != 0 {
		t.Error("series of a replica that left")
	}
}

// sampled returns the number of differences.
func sampled(t *testing.T, d *Differences) uint64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(d.cached)
	all := must.Get(reg.Gather())(t)
	return all[0].GetMetric()[0].GetHistogram().GetSampleCount()
}
