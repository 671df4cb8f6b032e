package index

import (
	"math/bits"
	"unsafe"
)

// dict maps 64-bit hashes to what they stand for, never 0. The writer's alone.
// Open addressing, neighbours move up when an entry goes.
type dict struct {
	slots []dictSlot
	mem   memory
	used  int
}

type dictSlot struct{ hash, val uint64 }

// How full a dict is, in percent: it grows from the first on to the second, and
// a sweep that finds it emptier than the third makes it as full as the fourth.
const (
	dictFull   = 62
	dictRoomy  = 42
	dictSparse = 48
	dictSnug   = 57
)

const leastDict = 8

func (l *dict) home(hash uint64) int {
	i, _ := bits.Mul64(hash*golden, uint64(len(l.slots)))
	return int(i)
}

// find is the place of a hash, -1 when absent.
func (l *dict) find(hash uint64) int {
	slots := l.slots
	if len(slots) == 0 {
		return -1
	}
	for i := l.home(hash); ; {
		s := &slots[i]
		if s.val == 0 {
			return -1
		}
		if s.hash == hash {
			return i
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
}

func (l *dict) get(hash uint64) uint64 {
	if i := l.find(hash); i >= 0 {
		return l.slots[i].val
	}
	return 0
}

// room makes room for n more entries.
func (l *dict) room(n int) {
	if want := l.used + n; want*100 > len(l.slots)*dictFull {
		l.resize(want * 100 / dictRoomy)
	}
}

// put gives an absent hash a val, and returns what a known one has instead, else
// 0. There is room.
func (l *dict) put(hash, val uint64) (was uint64) {
	slots := l.slots
	for i := l.home(hash); i < len(slots); {
		s := &slots[i]
		if s.val == 0 {
			s.hash, s.val = hash, val
			l.used++
			return 0
		}
		if s.hash == hash {
			return s.val
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
	return 0
}

// add changes a count by n, up from and down to an absent entry.
func (l *dict) add(hash uint64, n int) {
	i := l.find(hash)
	switch {
	case i < 0 && n > 0:
		l.room(1)
		l.put(hash, uint64(n))
	case i >= 0:
		if l.slots[i].val += uint64(n); l.slots[i].val == 0 {
			l.slots[i].val = 1
			l.del(i)
		}
	}
}

// del empties a place. The entries behind it move up.
func (l *dict) del(i int) {
	slots, n := l.slots, len(l.slots)
	for j := i; ; {
		if j++; j == n {
			j = 0
		}
		if slots[j].val == 0 {
			break
		}
		home := l.home(slots[j].hash)
		far, gap := j-home, j-i // how far j is from its home, and from the gap
		if far < 0 {
			far += n
		}
		if gap < 0 {
			gap += n
		}
		if far >= gap {
			slots[i] = slots[j]
			i = j
		}
	}
	slots[i] = dictSlot{}
	l.used--
}

// resize gives the dict room for n entries in full.
func (l *dict) resize(n int) {
	old := *l
	n = max(leastDict, n)
	l.mem = newMemory((n*int(unsafe.Sizeof(dictSlot{})) + int(unsafe.Sizeof(slot{})) - 1) / int(unsafe.Sizeof(slot{})))
	l.slots, l.used = unsafe.Slice((*dictSlot)(unsafe.Pointer(&l.mem.slots[0])), n), 0
	for i := range old.slots {
		if s := &old.slots[i]; s.val != 0 {
			l.put(s.hash, s.val)
		}
	}
	if len(old.slots) > 0 {
		old.mem.free() // nobody else reads it
	}
}

// each calls f for every entry. f may delete the one it is given: each begins
// before a free place and goes backwards, so what moves up then has had its turn.
func (l *dict) each(f func(at int, hash, val uint64)) {
	n, free := len(l.slots), 0
	for free < n && l.slots[free].val != 0 {
		free++
	}
	for k := 1; k < n; k++ {
		i := free - k
		if i < 0 {
			i += n
		}
		if s := l.slots[i]; s.val != 0 {
			f(i, s.hash, s.val)
		}
	}
}

// tidy gives memory back.
func (l *dict) tidy() {
	if len(l.slots) > leastDict && l.used*100 < len(l.slots)*dictSparse {
		l.resize(l.used * 100 / dictSnug)
	}
}

func (l *dict) discard() {
	if l.mem.slots != nil {
		l.mem.free()
	}
	*l = dict{}
}

func (l *dict) bytes() int { return len(l.slots) * int(unsafe.Sizeof(dictSlot{})) }
