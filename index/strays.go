package index

import (
	"slices"

	"warmroute/index/internal/radix"
)

// maxStrays bounds a holder's strays in a shard, by hashes.
const maxStrays = 1 << 12

// strays are a holder's blocks on GPU that are left out because the holder lacks a block before them.
// No prompt hits them there, and the engine keeps them: it hits them again once it has the block
// before them, and an engine that computes such a block again has it once more than it says.
type strays struct {
	of     map[uint64]stray    // by hash
	behind map[uint64][]uint64 // the hashes of strays, by the key of the block before them
}

// stray is a block that is left out.
type stray struct {
	ks          *keyspace
	key, before uint64 // of the block, and of the block before it; 0: not known
	copies      uint32
}

// add adds a stray; with full it is said to be there, and counts once.
func (s *strays) add(hash uint64, one stray, full bool) {
	was, known := s.of[hash]
	switch {
	case !known && len(s.of) == maxStrays:
		return
	case s.of == nil:
		*s = strays{map[uint64]stray{}, map[uint64][]uint64{}}
	}
	if was.before == 0 && one.before != 0 {
		was.ks, was.key, was.before = one.ks, one.key, one.before
		s.behind[one.before] = append(s.behind[one.before], hash)
	}
	if !known || !full {
		was.copies += one.copies
	}
	s.of[hash] = was
}

// remove removes one block of a hash.
func (s *strays) remove(hash uint64) {
	if one := s.of[hash]; one.copies > 1 {
		one.copies--
		s.of[hash] = one
	} else {
		s.drop(hash, one)
	}
}

func (s *strays) drop(hash uint64, one stray) {
	delete(s.of, hash)
	dropHash(s.behind, one.before, hash)
}

// dropHash removes a hash from the list of a key, and the key with its last hash.
func dropHash[K comparable](at map[K][]uint64, k K, hash uint64) {
	rest := slices.DeleteFunc(at[k], func(other uint64) bool { return other == hash })
	if len(rest) > 0 {
		at[k] = rest
	} else {
		delete(at, k)
	}
}

// take returns how many blocks of a hash there are besides the one that is stored, and removes them.
func (s *strays) take(hash uint64, full bool) uint32 {
	one, known := s.of[hash]
	if !known {
		return 0
	}
	s.drop(hash, one)
	if full { // the one that is stored may be one of them
		one.copies--
	}
	return one.copies
}

// leaveOut makes the blocks of an event strays. The key of the block before them is known, or 0.
func (sh *shard) leaveOut(r *segment, before uint64) {
	for i, hash := range r.hashes {
		one := stray{ks: r.ks, copies: 1}
		if before != 0 {
			one.key, one.before = r.keys[i], before
			before = one.key
		}
		sh.info[r.slot].strays.add(hash, one, r.full)
	}
}

// join counts the strays among the next n blocks, which are stored at p, as copies, and notes those
// that have strays behind them.
func (w *storing) join(p radix.Place, n int) {
	s := &w.info.strays
	for i, hash := range w.hashes[:n] {
		if more := s.take(hash, w.segment.full); more > 0 {
			w.sh.copies[copyKey{int32(w.segment.ks.index), int32(w.segment.slot), TierGPU, w.keys[i]}] += more
		}
		if len(s.behind[w.keys[i]]) > 0 {
			w.before = append(w.before, p+radix.Place(i))
		}
	}
}

// rejoin stores the strays behind blocks that were stored, and those behind them.
func (sh *shard) rejoin(r segment, stored []radix.Place) {
	info := &sh.info[r.slot]
	r.full = true // the engine does not say that it has them once more
	for len(stored) > 0 {
		p := stored[len(stored)-1]
		stored = stored[:len(stored)-1]
		key := sh.nodes.Key(p)
		for len(info.strays.behind[key]) > 0 && info.gpu.Has(p, key) {
			hash := info.strays.behind[key][0]
			r.before, r.keys, r.hashes = p, []uint64{info.strays.of[hash].key}, []uint64{hash}
			stored = append(stored, sh.store(&r, new(Result))...)
			info.strays.take(hash, true) // one that could not be stored is lost
		}
	}
}
