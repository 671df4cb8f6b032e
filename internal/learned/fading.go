package learned

import (
	"math"
	"time"
)

// Fading is a sum of which half is left after a time. It has no lock of its own.
type Fading struct {
	sum float64
	at  int64 // Unix ns
}

// halfLife is of every Fading: caches keep for minutes what they were sent.
const halfLife = 2 * time.Minute

// Add adds to the sum.
func (f *Fading) Add(n float64, now int64) { f.sum, f.at = f.Of(now)+n, now }

// Of returns what is left of the sum.
func (f *Fading) Of(now int64) float64 {
	return f.sum * math.Exp2(-float64(now-f.at)/float64(halfLife))
}
