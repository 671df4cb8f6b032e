package index

import "math/bits"

// deadlines maps entries with a deadline to it, in Unix nanoseconds: an open
// addressing table with linear probing that closes gaps on removal, so that
// entries coming and going forever leave nothing to clean up. A claim of a long
// prompt may do thousands of operations here, a third as dear as in a Go map. Not
// for concurrent use.
type deadlines struct {
	slots []deadline // a power of two, or none
	shift int        // 64 - log2(len(slots))
	n     int
	seed  uint64

	removed int // since the last resize
}

// deadline is one slot; at 0 is an empty one.
type deadline struct {
	key  uint64
	seat int32
	at   int64
}

// deadlinesLeast is the smallest table that is made.
const deadlinesLeast = 64

func newDeadlines(seed uint64) deadlines { return deadlines{seed: seed | 1} }

func (d *deadlines) home(key uint64, seat int32) int {
	return int((key ^ uint64(seat)*0x9E3779B97F4A7C15) * d.seed >> d.shift)
}

// get returns an entry's deadline, 0 if there is none.
func (d *deadlines) get(key uint64, seat int32) int64 {
	if i := d.find(key, seat); i >= 0 {
		return d.slots[i].at
	}
	return 0
}

// find returns an entry's slot, -1 if there is none.
func (d *deadlines) find(key uint64, seat int32) int {
	if d.n == 0 {
		return -1
	}
	for i := d.home(key, seat); ; i = (i + 1) & (len(d.slots) - 1) {
		switch s := &d.slots[i]; {
		case s.at == 0:
			return -1
		case s.key == key && s.seat == seat:
			return i
		}
	}
}

// set gives an entry a deadline, which must not be 0.
func (d *deadlines) set(key uint64, seat int32, at int64) {
	if d.n >= len(d.slots)*3/4 {
		d.resize(max(deadlinesLeast, 2*len(d.slots)))
	}
	mask := len(d.slots) - 1
	i := d.home(key, seat)
	for d.slots[i].at != 0 && (d.slots[i].key != key || d.slots[i].seat != seat) {
		i = (i + 1) & mask
	}
	if d.slots[i].at == 0 {
		d.n++
	}
	d.slots[i] = deadline{key, seat, at}
}

// remove takes an entry out; it need not be there.
func (d *deadlines) remove(key uint64, seat int32) bool {
	i := d.find(key, seat)
	if i < 0 {
		return false
	}
	mask := len(d.slots) - 1
	for j := (i + 1) & mask; d.slots[j].at != 0; j = (j + 1) & mask {
		// What lies at j may move to the gap unless its home is beyond it.
		if home := d.home(d.slots[j].key, d.slots[j].seat); (j-home)&mask >= (j-i)&mask {
			d.slots[i] = d.slots[j]
			i = j
		}
	}
	d.slots[i] = deadline{}
	d.n--
	// What comes and goes with every request must not make the table do so too.
	if d.removed++; len(d.slots) > deadlinesLeast && d.n < len(d.slots)/8 && d.removed > 4*len(d.slots) {
		d.resize(len(d.slots) / 2)
	}
	return true
}

func (d *deadlines) resize(size int) {
	old := d.slots
	d.removed = 0
	d.slots, d.shift, d.n = make([]deadline, size), 64-bits.TrailingZeros(uint(size)), 0
	for _, s := range old {
		if s.at != 0 {
			d.set(s.key, s.seat, s.at)
		}
	}
}
