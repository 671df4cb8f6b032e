package prefixcache

import (
	"math/rand/v2"
	"testing"
)

// TestTree grows random branches in a cache that is too small: an entry's ancestors are
// there as long as it is, the size is the sum of the entries and never beyond the limit,
// and values are their own.
func TestTree(t *testing.T) {
	const limit = 20_000
	c := New[int](limit)
	seed := NewSeed()
	r := rand.New(rand.NewPCG(1, 1))
	hashes := func(path []byte) (list []Hash) {
		var h Hash
		for i := range path {
			h = seed.Add(h, path[i:i+1])
			list = append(list, h)
		}
		return list
	}
	sum := func(path []byte) (n int) {
		for _, b := range path {
			n = 3*n + int(b) + 1
		}
		return n
	}
	found := 0
	for range 5000 {
		path := make([]byte, 1+r.IntN(8))
		for i := range path {
			path[i] = byte(r.IntN(3))
		}
		all := hashes(path)
		deepest := c.Deepest(len(all), func(i int) Hash { return all[i] })
		var known []*Entry[int]
		for e := deepest; e != nil; e = e.Parent {
			known = append([]*Entry[int]{e}, known...)
		}
		for i, e := range known {
			if e.Value != sum(path[:i+1]) {
				t.Fatalf("%v holds another's value", path[:i+1])
			}
		}
		found += len(known)
		for i, h := range all {
			if e := c.entries[h]; (e != nil) != (i < len(known)) || e != nil && e != known[i] {
				t.Fatal("an entry is there without its ancestors")
			}
		}
		rest := all[len(known):]
		c.Remember(deepest, len(rest), func(i int) Hash { return rest[i] }, func(i int, before *int) (int, int64) {
			if n := len(known) + i; (before != nil) != (n > 0) || n > 0 && *before != sum(path[:n]) {
				t.Fatal("not the value before")
			}
			return sum(path[:len(known)+i+1]), int64(r.IntN(100))
		})
		entries, bytes := c.Stats()
		var size int64
		for _, e := range c.entries {
			size += e.size
		}
		if bytes > limit || bytes != size || entries == 0 {
			t.Fatalf("%d entries of %d bytes, together %d", entries, bytes, size)
		}
	}
	if found == 0 {
		t.Error("nothing was ever known")
	}
	// A child of an evicted entry is not entered.
	gone := &Entry[int]{}
	before, _ := c.Stats()
	c.Remember(gone, 1, func(int) Hash { return Hash{Hi: 1} }, func(int, *int) (int, int64) { return 0, 0 })
	if after, _ := c.Stats(); after != before {
		t.Error("an entry without its ancestors was entered")
	}
}
