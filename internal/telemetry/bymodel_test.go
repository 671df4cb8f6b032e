package telemetry

import (
	"fmt"
	"sync"
	"testing"
)

// TestByModel: each model has its own, made once, and those beyond the limit have one
// together.
func TestByModel(t *testing.T) {
	made := map[string]int{}
	b := NewByModel(func(model string) *string { made[model]++; return &model })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 3 * MostModels {
				_ = b.Of(fmt.Sprint("m", i%MostModels))
			}
		})
	}
	all.Wait()
	for model, want := range map[string]string{"": "", "m0": "m0", "m63": "m63", "m64": OtherModels, "late": OtherModels} {
		if got := *b.Of(model); got != want {
			t.Errorf("%q has the series of %q, want %q", model, got, want)
		}
	}
	if len(made) != MostModels+2 {
		t.Errorf("%d were made", len(made))
	}
	for model, n := range made {
		if n != 1 {
			t.Errorf("%q was made %d times", model, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { b.Of("m7") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
