// Package hashtable has the open-addressing tables of the index. All of them map 64-bit
// keys that are hashes already.
//
//   - Table maps keys to sets of holders. Lookups read it without a lock.
//   - SharedIndex leads from keys to places of 40 bits. It keeps a fingerprint for a
//     key, so it returns candidates, which the caller compares with the keys at the
//     places. Lookups read it without a lock.
//   - Index is the same for its writer alone.
//   - Map maps keys to numbers, for its writer alone.
//
// Each has one writer at a time. A lookup has entered an epoch of the pool's clock
// (package epoch): a replaced array is freed when no lookup can read it.
package hashtable

// Golden is 2^64 / golden ratio, odd: multiplying by it spreads keys that differ
// anywhere over the high bits, which choose the place in a table.
const Golden = 0x9e3779b97f4a7c15

// KeyOf returns the key of a hash: the hash itself, but never 0, which means "none".
func KeyOf(hash uint64) uint64 {
	if hash == 0 {
		return 1
	}
	return hash
}
