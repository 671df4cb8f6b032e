package main

import (
	"fmt"
	"math"
	"slices"
)

// sum adds up one side's measurements of a cell.
type sum struct {
	cpu, seconds float64
	requests     int
	p50, p99     []float64
	rss          float64
	each         []float64 // CPU per request of each measurement
}

func (s *sum) add(r summary) {
	s.cpu += r.CPUPerReq * float64(r.Requests)
	s.requests += r.Requests
	s.seconds += r.Seconds
	s.p50, s.p99 = append(s.p50, r.PickMS.P50), append(s.p99, r.PickMS.P99)
	s.rss = max(s.rss, r.RSSAfterMB)
	s.each = append(s.each, r.CPUPerReq)
}

func (s *sum) perRequest() float64 { return s.cpu / float64(max(1, s.requests)) }

// paired returns the mean of the ratios of measurements taken one after the other, and
// its standard error: a machine that is slow for a while slows both of a pair.
func paired(a, b []float64) string {
	n := float64(len(a))
	var mean, squares float64
	for i := range a {
		mean += math.Log(a[i]/b[i]) / n
	}
	for i := range a {
		squares += math.Pow(math.Log(a[i]/b[i])-mean, 2)
	}
	return fmt.Sprintf("%.3f ± %.3f", math.Exp(mean), math.Sqrt(squares/max(1, n-1)/n))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
