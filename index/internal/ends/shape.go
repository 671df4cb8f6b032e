package ends

import "math"

// Shape is the rule for the ends at which a cache's groups other than full attention
// allow a hit. It is immutable.
type Shape struct {
	Step  int // ends are multiples of it
	Specs []Spec
	// Ahead: there are at least two specs, some of which drop a block. An end is then
	// one block behind the hit, and Step and all blocks are one block long.
	Ahead bool
}

// Spec is groups that are looked up together.
type Spec struct {
	Stride int  // the length of their blocks; Step is a multiple of it
	Need   int  // how many of their blocks before an end are read; fewer where the prompt is shorter
	Chunk  int  // else: those since the last multiple of it, a multiple of Step; 0: Need counts
	All    bool // else: all since the prompt's start; the only spec of a shape with Step 1
	Drops  bool // they drop a block (of Ahead)
	State  bool // they do so only in name: a Mamba state is found at the hit itself
}

// need is how many blocks must be held before an end.
func (s *Spec) need(end int) int {
	switch {
	case s.All:
		return end / s.Stride
	case s.Chunk > 0:
		return end % s.Chunk / s.Stride
	}
	return min(s.Need, end/s.Stride)
}

// reach is how far behind a block's start its presence matters.
func (s *Spec) reach() int {
	switch {
	case s.All:
		return math.MaxInt
	case s.Chunk > 0:
		return s.Chunk
	}
	return s.Need * s.Stride
}

// free reports whether there may be ends before which no block is needed.
func (s *Shape) free() bool {
	for i := range s.Specs {
		if s.Specs[i].Chunk == 0 {
			return false
		}
	}
	return true
}

// stateDrops reports whether a spec with states is among those that drop a block.
func (s *Shape) stateDrops() bool {
	for i := range s.Specs {
		if s.Specs[i].State && s.Specs[i].Drops {
			return true
		}
	}
	return false
}
