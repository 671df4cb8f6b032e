package holderset

import (
	"slices"
	"sync/atomic"

	"warmroute/index/internal/epoch"
)

// Slots gives slots to holders, which are numbers from 0. Init comes first.
type Slots struct {
	Live Mask // slots that lookups may see

	holders  atomic.Pointer[[]int32]        // by slot, replaced as a whole
	byHolder atomic.Pointer[[]atomic.Int32] // live slot + 1, 0 = none
	words    atomic.Int32                   // words of masks in use

	made  int
	free  []int
	dead  []int // killed, but perhaps still in sets
	swept epoch.Limbo[int]
}

// Init sets the clock of the lookups.
func (s *Slots) Init(c *epoch.Clock) {
	s.swept.Init(c)
	s.holders.Store(&[]int32{})
	s.byHolder.Store(&[]atomic.Int32{})
}

// grown returns p's array with room for index i.
func grown(p *atomic.Pointer[[]atomic.Int32], i int) []atomic.Int32 {
	old := *p.Load()
	if i < len(old) {
		return old
	}
	bigger := make([]atomic.Int32, max(8, 2*len(old), i+1))
	for k := range old {
		bigger[k].Store(old[k].Load())
	}
	p.Store(&bigger)
	return bigger
}

// Take returns a slot for a holder, live at once, or false if none is free.
func (s *Slots) Take(holder int32) (slot int, ok bool) {
	if len(s.free) == 0 {
		s.swept.Reclaim(func(slot int) { s.free = append(s.free, slot) })
	}
	switch n := len(s.free); {
	case n > 0:
		slot = s.free[n-1]
		s.free = s.free[:n-1]
	case s.made < MaxSlots:
		slot = s.made
		s.made++
	default:
		return 0, false
	}
	holders := make([]int32, max(s.made, len(*s.holders.Load())))
	copy(holders, *s.holders.Load())
	holders[slot] = holder
	s.holders.Store(&holders)
	grown(&s.byHolder, int(holder))[holder].Store(int32(slot) + 1)
	if w := int32(slot>>6) + 1; w > s.words.Load() {
		s.words.Store(w)
	}
	s.Live.Put(slot, true)
	return slot, true
}

// Of returns the live slot of a holder.
func (s *Slots) Of(holder int32) (slot int, ok bool) {
	b := *s.byHolder.Load()
	if int(holder) >= len(b) || holder < 0 {
		return 0, false
	}
	slot = int(b[holder].Load()) - 1
	return slot, slot >= 0
}

// Holder returns the present or last holder of a slot.
func (s *Slots) Holder(slot int) int32 { return (*s.holders.Load())[slot] }

// Holders returns the present or last holder of each slot.
func (s *Slots) Holders() []int32 { return *s.holders.Load() }

// Words returns how many words of a Mask are in use.
func (s *Slots) Words() int { return int(s.words.Load()) }

// Kill hides a slot from all lookups that start later.
func (s *Slots) Kill(slot int) {
	if !s.Live.Has(slot) {
		return
	}
	s.Live.Put(slot, false)
	(*s.byHolder.Load())[s.Holder(slot)].Store(0)
	s.dead = append(s.dead, slot)
}

// Dead returns the slots that were killed and not freed.
func (s *Slots) Dead() []int { return s.dead }

// Free makes killed slots usable that no set names any more.
func (s *Slots) Free(slots []int) {
	for _, slot := range slots {
		s.swept.Put(slot)
	}
	s.dead = slices.DeleteFunc(s.dead, func(slot int) bool { return slices.Contains(slots, slot) })
}
