package index

import "warmroute/index/internal/radix"

// maxTwins bounds the further hashes of one holder's blocks in a shard, about 100 bytes each.
const maxTwins = 1 << 16

// DoubtTwins is the doubt about a holder with twins.
const DoubtTwins = "its engine tells blocks apart that have the same tokens, adapter and salt here, as if an adapter had been loaded again under its name, or were used with several extra_keys"

// twins are the further hashes of a holder's visible blocks: engines may hash more than a key
// covers, and then have several blocks of one key. The block stays until all of them are gone.
// The first hash is the one that the nodes know. Twins of a block that the holder no longer has
// at its place count for nothing.
type twins struct {
	of map[uint64]twin
	at map[radix.Place][]uint64
}

// twin is a block by a further hash: its place and key, and how often it was announced.
type twin struct {
	place  radix.Place
	key    uint64
	copies uint32
}

// add announces a block at a place by a further hash. It returns false if the hash is of another
// block, or there are too many.
func (t *twins) add(hash uint64, p radix.Place, key uint64, full bool) bool {
	one, known := t.of[hash]
	switch {
	case known && (one.place != p || one.key != key), !known && len(t.of) == maxTwins:
		return false
	case !known:
		if t.of == nil {
			t.of, t.at = map[uint64]twin{}, map[radix.Place][]uint64{}
		}
		t.at[p] = append(t.at[p], hash)
		t.of[hash] = twin{p, key, 1}
	case !full:
		one.copies++
		t.of[hash] = one
	}
	return true
}

// remove removes one announcement of a hash, and reports whether there was one.
func (t *twins) remove(hash uint64) bool {
	one, known := t.of[hash]
	if !known {
		return false
	}
	if one.copies--; one.copies > 0 {
		t.of[hash] = one
	} else {
		t.drop(hash, one)
	}
	return true
}

func (t *twins) drop(hash uint64, one twin) {
	delete(t.of, hash)
	dropHash(t.at, one.place, hash)
}

// next takes a further hash of the block with a key at a place.
func (t *twins) next(p radix.Place, key uint64) (hash uint64, copies uint32) {
	for len(t.at[p]) > 0 {
		hash := t.at[p][0]
		one := t.of[hash]
		if t.drop(hash, one); one.key == key {
			return hash, one.copies
		}
	}
	return 0, 0
}

// storeTwin records that the holder has the block at p by a further hash.
func (w *storing) storeTwin(hash, key uint64, p radix.Place) bool {
	if !w.info.twins.add(hash, p, key, w.segment.full) {
		return false
	}
	w.res.Repeated++
	w.res.twins = true
	return true
}

// removeTwin removes a block by a further hash, and reports whether the holder had it so.
func (w *removing) removeTwin(hash uint64) bool {
	if !w.info.twins.remove(hash) {
		return false
	}
	w.res.Copies++
	return true
}

// inherit makes a further hash of a block the one that the nodes know, in place of a hash that is
// gone, and reports whether there was one.
func (w *removing) inherit(hash uint64, at radix.Position, p radix.Place, key uint64) bool {
	next, copies := w.info.twins.next(p, key)
	if copies == 0 {
		return false
	}
	w.info.gpu.Forget(hash, at)
	if w.info.gpu.Record(p, []uint64{next}) == 0 { // the nodes cannot know it: the block goes with its first hash
		w.info.gpu.Record(p, []uint64{hash})
		return false
	}
	if copies > 1 {
		w.sh.copies[copyKey{int32(w.ks.index), int32(w.slot), TierGPU, key}] = copies - 1
	}
	w.res.Copies++
	return true
}
