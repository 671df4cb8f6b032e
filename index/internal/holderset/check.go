package holderset

import (
	"fmt"
	"slices"
)

// Check reports an error in the sets, given the references to them: they must be
// counted and interned rightly, and name only slots in use. For tests.
func (s *Sets) Check(slots *Slots, refs map[ID]uint32) error {
	used := 0
	for k := range s.of {
		id, o := ID(FirstInterned+k), &s.of[k]
		if o.refs != refs[id] {
			return fmt.Errorf("set %d has %d references, counted as %d", id, refs[id], o.refs)
		}
		if o.refs == 0 {
			continue
		}
		used++
		size, print := 0, uint64(0)
		free := -1
		s.Each(id, func(slot int) {
			size, print = size+1, print^zobrist(slot)
			if !slots.Live.Has(slot) && !slices.Contains(slots.dead, slot) {
				free = slot
			}
		})
		if free >= 0 {
			return fmt.Errorf("set %d has slot %d, which is nobody's", id, free)
		}
		if size != int(o.size) || size < 2 || print != o.print || s.byPrint[print] != id {
			return fmt.Errorf("set %d of %d slots, counted as %d, is interned as %d", id, size, o.size, s.byPrint[print])
		}
	}
	if used != len(s.byPrint) || s.frozen {
		return fmt.Errorf("%d sets are used, %d interned (frozen %v)", used, len(s.byPrint), s.frozen)
	}
	return nil
}

// Len returns how many sets are interned.
func (s *Sets) Len() int { return len(s.byPrint) }
