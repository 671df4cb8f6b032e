package filter

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision"
)

// TestDecisionsByModelAndClass: each decision about a request that is ours is counted once, by its
// base model and its class.
func TestDecisionsByModelAndClass(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for base, recs := range map[string][]decision.Record{
		"m": {{Reason: decision.ReasonWarm}, {Reason: decision.ReasonLearned}, {Reason: decision.ReasonBusy},
			{Reason: decision.ReasonCold, Choice: decision.Choice{Withheld: decision.WithheldShadow}}},
		"": {{Reason: decision.ReasonUnknownModel}, {Reason: decision.ReasonNotOurs}},
	} {
		for i := range recs {
			m.decided(&recs[i], base, new([phases]time.Duration))
		}
	}
	want := map[string]map[decision.Class]int64{
		"m": {decision.ClassWarm: 2, decision.ClassFailed: 1, decision.ClassWithheld: 1}, "": {decision.ClassFailed: 1},
	}
	if got := m.Decisions(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
