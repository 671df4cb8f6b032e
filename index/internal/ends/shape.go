package ends

// Shape is the rule for the ends at which a cache's groups other than full attention
// allow a hit. It is immutable.
type Shape struct {
	Step  int // ends are multiples of it
	Specs []Spec
}

// Spec is groups that are looked up together. It needs some blocks before an end: the
// last Need; with a Chunk, those since the last multiple of Chunk.
type Spec struct {
	Stride int // the length of a block; Step is a multiple of it
	Need   int // blocks; fewer where the prompt is shorter
	Chunk  int // a multiple of Step, or 0
}

// need returns how many blocks must be held before an end.
func (s *Spec) need(end int) int {
	if s.Chunk > 0 {
		return end % s.Chunk / s.Stride
	}
	return min(s.Need, end/s.Stride)
}

// reach returns how far behind a block's start an end may still need the block.
func (s *Spec) reach() int {
	if s.Chunk > 0 {
		return s.Chunk
	}
	return s.Need * s.Stride
}

// free reports whether some ends may need no block: at each multiple of a chunk.
func (s *Shape) free() bool {
	for i := range s.Specs {
		if s.Specs[i].Chunk == 0 {
			return false
		}
	}
	return true
}
