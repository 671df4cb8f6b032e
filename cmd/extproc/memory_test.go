package main

import (
	"math"
	"runtime/debug"
	"testing"

	"warmroute/filter"
)

// TestBodiesFollowTheMemoryLimit: bodies that take eight times their size take at most half
// of the memory, but one of the longest is always read.
func TestBodiesFollowTheMemoryLimit(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		body         int
		memory, want int64
	}{
		"no limit": {64 * mib, math.MaxInt64, 1 << 30},
		"8 GiB":    {64 * mib, 8 << 30, 512 * mib},
		"512 MiB":  {64 * mib, 512 * mib, 2*64*mib + filter.SmallShare},
	} {
		if got := (FilterConfig{MaxBody: tt.body}).bodies(tt.memory); got != tt.want {
			t.Errorf("%s: %d bytes of bodies, want %d", name, got, tt.want)
		}
	}
}

// TestMemoryLimitOfTheEnvironmentStays: GOMEMLIMIT is the operator's.
func TestMemoryLimitOfTheEnvironmentStays(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "3GiB") // read by the library only; Go read the process's at its start
	before := debug.SetMemoryLimit(3 << 30)
	defer debug.SetMemoryLimit(before)
	if limit, err := limitMemory(); err != nil || limit != 3<<30 {
		t.Errorf("limit %d, %v", limit, err)
	}
}
