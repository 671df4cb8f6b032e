package learned

import "testing"

// TestFading: half of each part is left after each half-life.
func TestFading(t *testing.T) {
	var f Fading
	f.Add(8, 1e18)
	f.Add(2, 1e18+int64(halfLife))
	if got := f.Of(1e18 + 2*int64(halfLife)); !near(got, 3) {
		t.Errorf("%g are left, want 3", got)
	}
}
