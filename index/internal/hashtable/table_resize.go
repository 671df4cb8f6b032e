package hashtable

import (
	"math/bits"

	"warmroute/index/internal/offheap"
)

// Percentages of rebuilt arrays: with room to grow until the next rebuild, or as
// compact as lookups tolerate.
const (
	roomy   = 50
	compact = 66
)

// rebuild replaces an array by one that is percent full and has no rows without a set.
// Home positions rise with the hash, so rebuild walks both arrays in order.
func (t *Table) rebuild(q, percent int) {
	old := t.parts[q].Load()
	held := t.live[q]
	n := max(minPart, (held+1)*100/percent+1)
	step := 1 << max(0, bits.Len(uint(n))-5) // sizes in steps of 3 to 6 %, so that arrays can be used again
	n = (n + step - 1) / step * step
	p := t.newPart(n)
	for s := range t.Each(q) {
		i, _ := bits.Mul64((s.key^t.seed)*Golden<<partBits, uint64(len(p.rows)))
		for p.rows[i].key != 0 {
			if i++; i == uint64(len(p.rows)) {
				i = 0
			}
		}
		p.rows[i] = *s
	}
	t.used[q] = held
	t.builds++
	t.parts[q].Store(p)
	t.pool.Retire(old.words)
}

// Trim rebuilds arrays that are not compact.
func (t *Table) Trim() {
	for q := range t.parts {
		if p := t.parts[q].Load(); len(p.rows) > 4*minPart && t.live[q]*100 < len(p.rows)*p.sparse() {
			t.rebuild(q, compact)
		}
	}
}

// sparse returns the percentage from which on Trim leaves an array alone. An array that
// is a block of the pool can only be halved.
func (p *part) sparse() int {
	if size := 8 * len(p.words); size >= offheap.LeastBlock && size <= offheap.RegionSize {
		return compact/2 - 4
	}
	return compact - 8
}
