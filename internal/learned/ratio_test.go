package learned

import (
	"math"
	"sync"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

// TestRatio: it is the prior before the first observation, then the quotient of the sums, and
// follows the latest by their share.
func TestRatio(t *testing.T) {
	var r Ratio
	if r.Of(3, 0) != 3 || r.Of(3, 10) != 3 || r.Whole() != 0 {
		t.Errorf("before the first: %g, %g of %g", r.Of(3, 0), r.Of(3, 10), r.Whole())
	}
	r.Add(10, 2, 0)
	r.Add(2, 6, 0)
	if !near(r.Of(9, 0), 1.5) || !near(r.Of(9, 8), 5.25) || r.Whole() != 8 {
		t.Errorf("12 for 8: %g, with a prior %g, of %g", r.Of(9, 0), r.Of(9, 8), r.Whole())
	}
	for range 200 {
		r.Add(14, 2, 0.02)
	}
	if got := r.Of(0, 0); got < 6.8 || got > 7 || r.Whole() < 98 || r.Whole() > 100 {
		t.Errorf("%g of %g after four times as many sevens as count", got, r.Whole())
	}
	r.Add(50, 100, 0.5)
	if got := r.Of(0, 0); math.Abs(got-(350+50)/150.) > 0.05 {
		t.Errorf("%g after one that halves what was before", got)
	}
	r.Add(3, 3, 7)
	if got := r.Of(0, 0); got != 1 || r.Whole() != 3 {
		t.Errorf("%g of %g after one that alone counts", got, r.Whole())
	}
}

// TestRatioForgetsAnything: no value stays for ever.
func TestRatioForgetsAnything(t *testing.T) {
	var r Ratio
	for range 3 {
		r.Add(1e300, 1, 0.1)
	}
	for range 1500 {
		r.Add(1, 1, 0.1)
	}
	if got := r.Of(0, 0); !near(got, 1) {
		t.Errorf("%g after many ones", got)
	}
}

// TestRatioCountsEach: of observations at once, none is lost.
func TestRatioCountsEach(t *testing.T) {
	var r Ratio
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				r.Add(2, 1, 0)
			}
		})
	}
	all.Wait()
	if r.Whole() != 8000 || !near(r.Of(0, 0), 2) {
		t.Errorf("%g of %g, want 2 of 8000", r.Of(0, 0), r.Whole())
	}
	if n := testing.AllocsPerRun(100, func() { r.Add(1, 1, 0.1); r.Of(1, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNear(t *testing.T) {
	for _, tt := range []struct{ value, want float64 }{{1, 2}, {2, 2}, {5, 5}, {18, 18}, {19, 18}, {-1, 2}, {math.Inf(1), 18}} {
		if got := Near(tt.value, 6, 3); got != tt.want {
			t.Errorf("%g of 6: %g, want %g", tt.value, got, tt.want)
		}
	}
}
