package learned

import (
	"math"
	"sync/atomic"
)

// Ratio is the quotient of two sums over observations, so that large ones count more than small
// ones, and late ones more than early ones. The zero value has none.
type Ratio struct{ sums atomic.Uint64 } // two float32: of the parts, and of the wholes

// Add counts an observation of part for whole, after it has taken off a share of what was
// observed before.
func (r *Ratio) Add(part, whole, share float64) {
	keep := max(0, 1-share)
	for {
		old := r.sums.Load()
		p, w := parts(old)
		if r.sums.CompareAndSwap(old, uint64(bits(p*keep+part))<<32|uint64(bits(w*keep+whole))) {
			return
		}
	}
}

// Of returns the quotient, as if prior had been observed for a whole of weight, too.
func (r *Ratio) Of(prior, weight float64) float64 {
	p, w := parts(r.sums.Load())
	if w+weight == 0 {
		return prior
	}
	return (p + prior*weight) / (w + weight)
}

// Whole returns the sum of the wholes, 0 before the first observation.
func (r *Ratio) Whole() float64 {
	_, w := parts(r.sums.Load())
	return w
}

func parts(sums uint64) (part, whole float64) {
	return float64(math.Float32frombits(uint32(sums >> 32))), float64(math.Float32frombits(uint32(sums)))
}

func bits(sum float64) uint32 { return math.Float32bits(float32(min(sum, math.MaxFloat32))) }

// Near returns the value within a factor of what was expected: more, a single observation does
// not show.
func Near(value, expected, factor float64) float64 {
	return max(expected/factor, min(expected*factor, value))
}
