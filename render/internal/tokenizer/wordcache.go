package tokenizer

import (
	"encoding/binary"
	"sync/atomic"
)

// wordCache remembers the ids of recent words: a fixed number of slots, two to
// a bucket, the newest word replacing an older one. Readers and writers take no
// lock: a slot is guarded by a sequence number, odd while it is written, and a
// reader that sees it change takes the slot for empty.
type wordCache struct {
	slots []cacheSlot
	mask  uint64
}

const (
	// cacheWord and cacheIDs bound the contents of a slot; with its numbers a slot is 128
	// bytes, two cache lines. Longer words seldom come twice.
	cacheWord  = 48
	cacheIDs   = 14
	cacheSlots = 1 << 15 // 4 MB a tokenizer
)

type cacheSlot struct {
	seq  atomic.Uint64
	hash atomic.Uint64
	word [cacheWord / 8]atomic.Uint64
	size atomic.Uint64 // bytes of the word, ids << 8
	ids  [cacheIDs / 2]atomic.Uint64
}

func newWordCache(slots int) *wordCache {
	return &wordCache{make([]cacheSlot, slots), uint64(slots - 1)}
}

func (c *wordCache) get(dst []uint32, word []byte, h uint64) ([]uint32, bool) {
	for i := range uint64(2) {
		s := &c.slots[(h>>20^i)&c.mask]
		if s.hash.Load() != h {
			continue
		}
		if out, ok := s.read(dst, word, h); ok {
			return out, true
		}
	}
	return dst, false
}

func (s *cacheSlot) read(dst []uint32, word []byte, h uint64) ([]uint32, bool) {
	seq := s.seq.Load()
	size := s.size.Load()
	if seq&1 != 0 || s.hash.Load() != h || int(size&0xff) != len(word) {
		return dst, false
	}
	var buf [cacheWord]byte
	for i := 0; i < len(word); i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], s.word[i/8].Load())
	}
	if string(buf[:len(word)]) != string(word) {
		return dst, false
	}
	n := len(dst)
	for i := range size >> 8 {
		dst = append(dst, uint32(s.ids[i/2].Load()>>(i&1*32)))
	}
	if s.seq.Load() != seq {
		return dst[:n], false
	}
	return dst, true
}

func (c *wordCache) put(word []byte, h uint64, ids []uint32) {
	if len(ids) > cacheIDs {
		return
	}
	// The empty slot of the two, else the slot that the hash selects.
	i := h >> 20 & c.mask
	if c.slots[i].hash.Load() != 0 && (c.slots[i^1].hash.Load() == 0 || h>>63 == 1) {
		i ^= 1
	}
	s := &c.slots[i]
	seq := s.seq.Load()
	if seq&1 != 0 || !s.seq.CompareAndSwap(seq, seq+1) {
		return // another goroutine is writing: the word can come again
	}
	var buf [cacheWord]byte
	copy(buf[:], word)
	s.hash.Store(h)
	for i := range s.word {
		s.word[i].Store(binary.LittleEndian.Uint64(buf[i*8:]))
	}
	s.size.Store(uint64(len(word)) | uint64(len(ids))<<8)
	for i := 0; i < len(ids); i += 2 {
		v := uint64(ids[i])
		if i+1 < len(ids) {
			v |= uint64(ids[i+1]) << 32
		}
		s.ids[i/2].Store(v)
	}
	s.seq.Store(seq + 2)
}
