package index

import "math/bits"

// owners maps the entries of keys with several holders to the number of the claim
// they last by: an open addressing table with linear probing that closes gaps on
// removal, so that entries coming and going forever leave nothing to clean up. A
// claim of a long prompt may do thousands of operations here, a third as dear as
// in a Go map. Not for concurrent use.
type owners struct {
	slots []owner // a power of two, or none
	shift int     // 64 - log2(len(slots))
	n     int
	seed  uint64

	removed int // since the last resize
}

// owner is one slot; claim 0 is an empty one.
type owner struct {
	key   uint64
	seat  int32
	claim int64
}

// ownersLeast is the smallest table that is made.
const ownersLeast = 64

func newOwners(seed uint64) owners { return owners{seed: seed | 1} }

func (d *owners) home(key uint64, seat int32) int {
	return int((key ^ uint64(seat)*0x9E3779B97F4A7C15) * d.seed >> d.shift)
}

// get returns the number of an entry's claim, 0 if there is none.
func (d *owners) get(key uint64, seat int32) int64 {
	if i := d.find(key, seat); i >= 0 {
		return d.slots[i].claim
	}
	return 0
}

// find returns an entry's slot, -1 if there is none.
func (d *owners) find(key uint64, seat int32) int {
	if d.n == 0 {
		return -1
	}
	for i := d.home(key, seat); ; i = (i + 1) & (len(d.slots) - 1) {
		switch s := &d.slots[i]; {
		case s.claim == 0:
			return -1
		case s.key == key && s.seat == seat:
			return i
		}
	}
}

// set gives an entry a claim, whose number must not be 0.
func (d *owners) set(key uint64, seat int32, claim int64) {
	if d.n >= len(d.slots)*3/4 {
		d.resize(max(ownersLeast, 2*len(d.slots)))
	}
	mask := len(d.slots) - 1
	i := d.home(key, seat)
	for d.slots[i].claim != 0 && (d.slots[i].key != key || d.slots[i].seat != seat) {
		i = (i + 1) & mask
	}
	if d.slots[i].claim == 0 {
		d.n++
	}
	d.slots[i] = owner{key, seat, claim}
}

// remove takes an entry out; it need not be there.
func (d *owners) remove(key uint64, seat int32) bool {
	i := d.find(key, seat)
	if i < 0 {
		return false
	}
	mask := len(d.slots) - 1
	for j := (i + 1) & mask; d.slots[j].claim != 0; j = (j + 1) & mask {
		// What lies at j may move to the gap unless its home is beyond it.
		if home := d.home(d.slots[j].key, d.slots[j].seat); (j-home)&mask >= (j-i)&mask {
			d.slots[i] = d.slots[j]
			i = j
		}
	}
	d.slots[i] = owner{}
	d.n--
	// What comes and goes with every request must not make the table do so too.
	if d.removed++; len(d.slots) > ownersLeast && d.n < len(d.slots)/8 && d.removed > 4*len(d.slots) {
		d.resize(len(d.slots) / 2)
	}
	return true
}

func (d *owners) resize(size int) {
	old := d.slots
	d.removed = 0
	d.slots, d.shift, d.n = make([]owner, size), 64-bits.TrailingZeros(uint(size)), 0
	for _, s := range old {
		if s.claim != 0 {
			d.set(s.key, s.seat, s.claim)
		}
	}
}
