package main

import "testing"

// TestUsageIsDrawn: as many numbers as the percentage says, and the same ones again.
func TestUsageIsDrawn(t *testing.T) {
	const numbers = 100_000
	var u usageShare
	for _, percent := range []int{0, 1, 10, 100} {
		u.Set(percent)
		n, both := 0, 0
		for seq := range uint64(numbers) {
			if !u.draws(seq) {
				continue
			}
			if n++; u.draws(seq + 1) {
				both++
			}
		}
		want, pairs := numbers*percent/100, numbers*percent*percent/10_000
		if n < want*9/10 || n > want*11/10 || both < pairs*7/10 || both > pairs*13/10+10 {
			t.Errorf("%d percent: %d drawn of %d, %d of them before another", percent, n, numbers, both)
		}
	}
}
