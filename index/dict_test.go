package index

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// dictHashes are hashes of which many want the same places, also about the end.
func dictHashes(n int) map[string][]uint64 {
	rng := rand.New(rand.NewPCG(4, 4))
	kinds := map[string][]uint64{}
	for i := range uint64(n) {
		kinds["random"] = append(kinds["random"], rng.Uint64())
		kinds["first place"] = append(kinds["first place"], i*ungolden)
		kinds["last place"] = append(kinds["last place"], (1<<64-1-i)*ungolden)
		kinds["about the end"] = append(kinds["about the end"], (1<<64-1-i-uint64(rng.IntN(3))<<57)*ungolden)
	}
	return kinds
}

func TestDictIsAMap(t *testing.T) {
	steps := 40_000
	if raceEnabled {
		steps /= 10
	}
	for kind, hashes := range dictHashes(150) {
		t.Run(kind, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			var l dict
			defer l.discard()
			m := map[uint64]uint64{}
			for i := range steps {
				hash := hashes[rng.IntN(len(hashes))]
				up := i/600%2 == 0
				switch op := rng.IntN(100); {
				case op < 30 && up, op < 10:
					l.room(1)
					val := 1 + rng.Uint64N(1000)
					if was := l.put(hash, val); was != m[hash] {
						t.Fatalf("%x was %d, want %d", hash, was, m[hash])
					} else if was == 0 {
						m[hash] = val
					}
				case op < 55:
					if k := l.find(hash); k >= 0 {
						l.del(k)
					} else if m[hash] != 0 {
						t.Fatalf("%x is lost", hash)
					}
					delete(m, hash)
				case op < 75:
					l.add(hash, 1)
					m[hash]++
				case op < 90:
					l.add(hash, -1)
					if m[hash] > 0 {
						m[hash]--
					}
					if m[hash] == 0 {
						delete(m, hash)
					}
				case op == 98:
					l.tidy()
				case op == 99:
					l.resize(l.used + 1 + rng.IntN(l.used+20))
				}
				if i%16 == 0 {
					sameDict(t, &l, m, hashes)
				}
			}
		})
	}
}

func sameDict(t *testing.T, l *dict, m map[uint64]uint64, hashes []uint64) {
	t.Helper()
	for _, hash := range hashes {
		if got := l.get(hash); got != m[hash] {
			t.Fatalf("%x is %d, want %d", hash, got, m[hash])
		}
	}
	all := map[uint64]uint64{}
	l.each(func(_ int, hash, val uint64) { all[hash] = val })
	if !maps.Equal(all, m) || l.used != len(m) {
		t.Fatalf("%d entries, %d counted, want %d", len(all), l.used, len(m))
	}
}

// each comes to every entry, whichever of them f deletes.
func TestDictEachMayDelete(t *testing.T) {
	for kind, hashes := range dictHashes(40) {
		t.Run(kind, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 2))
			for range 2000 {
				var l dict
				gone, seen := map[uint64]bool{}, map[uint64]bool{}
				n := 1 + rng.IntN(len(hashes))
				l.resize(n*100/dictFull + 1 + rng.IntN(20))
				for _, hash := range hashes[:n] {
					l.put(hash, 1)
					gone[hash] = rng.IntN(3) > 0
				}
				l.each(func(at int, hash, _ uint64) {
					seen[hash] = true
					if gone[hash] {
						l.del(at)
					}
				})
				for _, hash := range hashes[:n] {
					if !seen[hash] || (l.get(hash) != 0) == gone[hash] {
						t.Fatalf("%x of %d: seen %v, to go %v, is %d", hash, n, seen[hash], gone[hash], l.get(hash))
					}
				}
				l.discard()
			}
		})
	}
}
