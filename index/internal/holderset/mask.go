package holderset

import "sync/atomic"

// MaxSlots bounds the slots.
const MaxSlots = 16384

// MaskWords is the length of a Mask.
const MaskWords = MaxSlots / 64

// Mask is one bit per slot, read without a lock.
type Mask [MaskWords]uint64

// Load returns the bits of the slots word<<6 … word<<6+63.
func (m *Mask) Load(word int) uint64 { return atomic.LoadUint64(&m[word]) }

// Put sets or clears a slot's bit. Writer only.
func (m *Mask) Put(slot int, on bool) {
	w := m[slot>>6] &^ (1 << (slot & 63))
	if on {
		w |= 1 << (slot & 63)
	}
	atomic.StoreUint64(&m[slot>>6], w)
}

// Has reports whether a slot's bit is set.
func (m *Mask) Has(slot int) bool { return atomic.LoadUint64(&m[slot>>6])>>(slot&63)&1 != 0 }
