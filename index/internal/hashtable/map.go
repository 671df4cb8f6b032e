package hashtable

import (
	"math/bits"

	"warmroute/index/internal/offheap"
)

// Map maps keys to values above 0. It is its writer's alone. It probes linearly, and
// neighbours move up when an entry goes, so entries that come and go forever leave
// nothing to clean up. Init comes first.
type Map struct {
	pool    *offheap.Pool
	entries []entry
	words   []uint64 // their memory
	used    int
}

type entry struct{ key, value uint64 }

// Percentages of a map's entries that are used: a map that reaches mapFull grows to
// mapRoomy, and Trim makes a map below mapSparse as full as mapSnug.
const (
	mapFull   = 62
	mapRoomy  = 42
	mapSparse = 48
	mapSnug   = 57
)

const leastMap = 8

// Init makes an empty map.
func (m *Map) Init(p *offheap.Pool) { *m = Map{pool: p} }

func (m *Map) home(key uint64) int {
	i, _ := bits.Mul64(key*Golden, uint64(len(m.entries)))
	return int(i)
}

// find returns the index of a key's entry, or of the empty entry where its search
// ends; -1 when there are no entries.
func (m *Map) find(key uint64) (i int, found bool) {
	entries := m.entries
	if len(entries) == 0 {
		return -1, false
	}
	for i = m.home(key); ; {
		e := &entries[i]
		if e.value == 0 {
			return i, false
		}
		if e.key == key {
			return i, true
		}
		if i++; i == len(entries) {
			i = 0
		}
	}
}

// Get returns the value of a key, 0 when absent.
func (m *Map) Get(key uint64) uint64 {
	if i, ok := m.find(key); ok {
		return m.entries[i].value
	}
	return 0
}

// Put gives an absent key a value. If the key is present, it returns the present
// value, otherwise 0.
func (m *Map) Put(key, value uint64) (was uint64) {
	m.reserve(1)
	i, ok := m.find(key)
	if ok {
		return m.entries[i].value
	}
	m.entries[i] = entry{key, value}
	m.used++
	return 0
}

// Add changes a count by n. An absent entry counts 0, and a count of 0 is absent.
func (m *Map) Add(key uint64, n int) {
	i, ok := m.find(key)
	switch {
	case !ok && n > 0:
		m.Put(key, uint64(n))
	case ok && m.entries[i].value+uint64(n) == 0:
		m.remove(i)
	case ok:
		m.entries[i].value += uint64(n)
	}
}

// Delete removes a key and returns its value, 0 when absent.
func (m *Map) Delete(key uint64) (was uint64) {
	if i, ok := m.find(key); ok {
		was = m.entries[i].value
		m.remove(i)
	}
	return was
}

// remove empties an entry. The entries behind it move up.
func (m *Map) remove(i int) {
	entries, n := m.entries, len(m.entries)
	for j := i; ; {
		if j++; j == n {
			j = 0
		}
		if entries[j].value == 0 {
			break
		}
		home := m.home(entries[j].key)
		far, gap := j-home, j-i // how far j is from its home, and from the gap
		if far < 0 {
			far += n
		}
		if gap < 0 {
			gap += n
		}
		if far >= gap {
			entries[i] = entries[j]
			i = j
		}
	}
	entries[i] = entry{}
	m.used--
}

// reserve makes room for n more entries.
func (m *Map) reserve(n int) {
	if want := m.used + n; want*100 > len(m.entries)*mapFull {
		m.resize(want * 100 / mapRoomy)
	}
}

// resize gives the map n entries, used ones and empty ones.
func (m *Map) resize(n int) {
	old, words := m.entries, m.words
	m.words = m.pool.Zeroed(offheap.Words[entry](max(leastMap, n)))
	m.entries = offheap.Of[entry](m.words)
	for i := range old {
		if e := old[i]; e.value != 0 {
			free, _ := m.find(e.key)
			m.entries[free] = e
		}
	}
	if words != nil {
		m.pool.Free(words) // no other goroutine reads it
	}
}

// Len returns the number of entries.
func (m *Map) Len() int { return m.used }

// Each calls f for every entry and removes an entry for which f returns false. It
// begins before an empty entry and goes backwards, so f has seen every entry that
// moves up.
func (m *Map) Each(f func(key, value uint64) (keep bool)) {
	n, empty := len(m.entries), 0
	for empty < n && m.entries[empty].value != 0 {
		empty++
	}
	for k := 1; k < n; k++ {
		i := empty - k
		if i < 0 {
			i += n
		}
		if e := m.entries[i]; e.value != 0 && !f(e.key, e.value) {
			m.remove(i)
		}
	}
}

// Trim returns unused memory.
func (m *Map) Trim() {
	if len(m.entries) > leastMap && m.used*100 < len(m.entries)*mapSparse {
		m.resize(m.used * 100 / mapSnug)
	}
}

// Discard empties the map and frees its memory.
func (m *Map) Discard() {
	if m.words != nil {
		m.pool.Free(m.words)
	}
	m.Init(m.pool)
}

// Bytes returns the memory of the entries.
func (m *Map) Bytes() int { return len(m.entries) * 16 }
