package main

import (
	"slices"
	"time"
)

// trimmedMean leaves out the slowest 0.2 % of the lookups: the machine causes them, not
// the index.
func trimmedMean(v []time.Duration) float64 {
	slices.Sort(v)
	v = v[:len(v)*998/1000]
	sum := 0.0
	for _, d := range v {
		sum += float64(d)
	}
	return sum / float64(max(1, len(v)))
}

func quantile(v []time.Duration, q float64) int64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return int64(v[int(float64(len(v)-1)*q)])
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}
