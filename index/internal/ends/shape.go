package ends

// Shape is the rule for the ends at which a cache's groups other than full attention
// allow a hit.
// It is immutable.
type Shape struct {
	Step  int // hits are multiples of it
	After int // and longer than this
	Specs []Spec
}

// Spec is groups that are looked up together.
type Spec struct {
	Stride int // the length of their blocks; Step is a multiple of it
	Need   int // how many of their blocks before an end are read; fewer where the prompt is shorter
	Chunk  int // else: those since the last multiple of it, a multiple of Step; 0: Need counts
}

// need is how many blocks must be held before an end.
func (s *Spec) need(end int) int {
	if s.Chunk > 0 {
		return end % s.Chunk / s.Stride
	}
	return min(s.Need, end/s.Stride)
}

// reach is how far behind a block's start its presence matters.
func (s *Spec) reach() int {
	if s.Chunk > 0 {
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
