package hashtable

import (
	"maps"
	"math/rand/v2"
	"testing"

	"warmroute/render/testkit/race"
)

// mapKeys are keys of which many want the same places, also about the end.
func mapKeys(n int) map[string][]uint64 {
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

func TestMapIsAMap(t *testing.T) {
	steps := 40_000
	if race.Enabled {
		steps /= 10
	}
	for kind, keys := range mapKeys(150) {
		t.Run(kind, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			var l Map
			l.Init(&newMemory(t).pool)
			m := map[uint64]uint64{}
			for i := range steps {
				key := keys[rng.IntN(len(keys))]
				up := i/600%2 == 0
				switch op := rng.IntN(100); {
				case op < 30 && up, op < 10:
					val := 1 + rng.Uint64N(1000)
					if was := l.Put(key, val); was != m[key] {
						t.Fatalf("%x was %d, want %d", key, was, m[key])
					} else if was == 0 {
						m[key] = val
					}
				case op < 55:
					if was := l.Delete(key); was != m[key] {
						t.Fatalf("%x was %d, want %d", key, was, m[key])
					}
					delete(m, key)
				case op < 75:
					l.Add(key, 1)
					m[key]++
				case op < 90:
					l.Add(key, -1)
					if m[key] > 0 {
						m[key]--
					}
					if m[key] == 0 {
						delete(m, key)
					}
				case op == 98:
					l.Trim()
				case op == 99:
					l.resize(l.Len() + 1 + rng.IntN(l.Len()+20))
				}
				if i%16 == 0 {
					sameMap(t, &l, m, keys)
				}
			}
		})
	}
}

func sameMap(t *testing.T, l *Map, m map[uint64]uint64, keys []uint64) {
	t.Helper()
	for _, key := range keys {
		if got := l.Get(key); got != m[key] {
			t.Fatalf("%x is %d, want %d", key, got, m[key])
		}
	}
	all := map[uint64]uint64{}
	l.Each(func(key, val uint64) bool { all[key] = val; return true })
	if !maps.Equal(all, m) || l.Len() != len(m) {
		t.Fatalf("%d entries, %d counted, want %d", len(all), l.Len(), len(m))
	}
}

// Each comes to every entry, whichever of them it takes out.
func TestEachMayTakeOut(t *testing.T) {
	for kind, keys := range mapKeys(40) {
		t.Run(kind, func(t *testing.T) {
			rng, pool := rand.New(rand.NewPCG(2, 2)), &newMemory(t).pool
			for range 2000 {
				var l Map
				l.Init(pool)
				gone, seen := map[uint64]bool{}, map[uint64]bool{}
				n := 1 + rng.IntN(len(keys))
				l.resize(n*100/mapFull + 1 + rng.IntN(20))
				for _, key := range keys[:n] {
					l.Put(key, 1)
					gone[key] = rng.IntN(3) > 0
				}
				l.Each(func(key, _ uint64) bool {
					seen[key] = true
					return !gone[key]
				})
				for _, key := range keys[:n] {
					if !seen[key] || (l.Get(key) != 0) == gone[key] {
						t.Fatalf("%x of %d: seen %v, to go %v, is %d", key, n, seen[key], gone[key], l.Get(key))
					}
				}
				l.Discard()
			}
		})
	}
}
