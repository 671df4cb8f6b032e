package index

import (
	"encoding/binary"
	"sync"

	"warmroute/prefixhash"
)

// maxForeign bounds the long hashes of a Foreign, about 100 bytes each.
const maxForeign = 1 << 20

// Foreign turns the hashes of any reporter into keys. A hash of up to 8 bytes is
// the key itself, big-endian. The key of one of vLLM's digests (16 or 32 bytes)
// is its last 8 bytes, the integer that vLLM publishes for the same digest: so
// replicas that report integers and replicas that report bytes meet. Other long
// hashes promise nothing about any 8 of their bytes: Foreign keeps them in full,
// and a hash whose last 8 bytes are another's has no key. The zero value is
// ready; any goroutine may call the methods.
type Foreign struct {
	mu    sync.RWMutex
	full  map[prefixhash.Key]string
	order []prefixhash.Key // a ring, oldest at next once it is full
	next  int
}

// Key returns the key of a reported hash, or false if it is empty or clashes with
// another long hash.
func (f *Foreign) Key(hash []byte) (prefixhash.Key, bool) {
	key, long := shorten(hash)
	if !long {
		return key, len(hash) > 0
	}
	if known, ok := f.lookup(key); ok {
		return key, known == string(hash)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.full[key]; ok {
		return key, known == string(hash)
	}
	if f.full == nil {
		f.full = map[prefixhash.Key]string{}
	}
	if len(f.order) < maxForeign {
		f.order = append(f.order, key)
	} else {
		delete(f.full, f.order[f.next])
		f.order[f.next] = key
		f.next = (f.next + 1) % maxForeign
	}
	f.full[key] = string(hash)
	return key, true
}

// Find returns the key of a hash, without storing it. It returns false if the
// hash is empty, was never reported, was dropped, or clashes.
func (f *Foreign) Find(hash []byte) (prefixhash.Key, bool) {
	key, long := shorten(hash)
	if !long {
		return key, len(hash) > 0
	}
	known, ok := f.lookup(key)
	return key, ok && known == string(hash)
}

func (f *Foreign) lookup(key prefixhash.Key) (string, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	known, ok := f.full[key]
	return known, ok
}

// shorten returns a hash's last 8 bytes, and whether they may not stand for all.
func shorten(hash []byte) (key prefixhash.Key, long bool) {
	n := len(hash)
	var last [8]byte
	copy(last[max(0, 8-n):], hash[max(0, n-8):])
	return prefixhash.Key(binary.BigEndian.Uint64(last[:])), n > 8 && n != 16 && n != 32
}
