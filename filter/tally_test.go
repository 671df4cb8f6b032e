package filter

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision"
)

// TestDecisionsByModelAndClass: decisions that come at once are all counted, once; those of
// models beyond the limit count without a model.
func TestDecisionsByModelAndClass(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	const workers, models = 4, mostTallied + 10
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range models {
				for _, rec := range []decision.Record{
					{Subject: decision.Subject{Model: fmt.Sprint(i)}, Reason: decision.ReasonWarm}, {Subject: decision.Subject{Model: fmt.Sprint(i)}, Reason: decision.ReasonBusy},
					{Subject: decision.Subject{Model: fmt.Sprint(i)}, Reason: decision.ReasonCold, Choice: decision.Choice{Withheld: decision.WithheldShadow}}, {Reason: decision.ReasonUnknownModel},
					{Reason: decision.ReasonNotOurs},
				} {
					m.tallies.count(&rec)
				}
			}
		})
	}
	all.Wait()
	sum := map[decision.Class]int64{}
	got := m.Decisions()
	for _, of := range got {
		for class, n := range of {
			sum[class] += n
		}
	}
	const each = workers * models
	if len(got) != mostTallied+1 || sum[decision.ClassWarm] != each || sum[decision.ClassWithheld] != each || sum[decision.ClassFailed] != 2*each || len(sum) != 3 {
		t.Errorf("%d models, %v", len(got), sum)
	}
	if without := got[""]; without[decision.ClassWarm] != 10*workers || without[decision.ClassFailed] != each+10*workers {
		t.Errorf("without a model: %v", without)
	}
}
