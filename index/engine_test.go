package index

import (
	"math/rand/v2"
	"testing"
)

// TestEngineMapAgainstAMap: hashes come and go for several holders, many in one
// group and a run of full ones; in the end nothing is left, nor marked.
func TestEngineMapAgainstAMap(t *testing.T) {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	d := newDomain(x, domainKey{model: "m"})
	m := d.engines
	defer m.discard()
	rng := rand.New(rand.NewPCG(3, 4))
	// Few high bits after the multiplication: few home groups.
	universe := make([]uint64, 3000)
	inverse := uint64(1) // of golden, modulo 2^64, by Newton's iteration
	for range 6 {
		inverse *= 2 - golden*inverse
	}
	for i := range universe {
		universe[i] = (rng.Uint64N(4)<<58 | rng.Uint64()>>8) * inverse
	}
	const seats = 3
	type known struct {
		key  uint64
		held [seats]bool
	}
	want := map[uint64]*known{}
	check := func() {
		t.Helper()
		if m.count() != len(want) {
			t.Fatalf("%d hashes, want %d", m.count(), len(want))
		}
		for _, hash := range universe {
			e, w := m.find(hash), want[hash]
			if e.found() != (w != nil) {
				t.Fatalf("%x: found %v, want %v", hash, e.found(), w != nil)
			}
			if w == nil {
				continue
			}
			if e.hash() != hash || e.key() != w.key || e.space() != 5 {
				t.Fatalf("%x: hash %x, key %x, space %d", hash, e.hash(), e.key(), e.space())
			}
			for seat, held := range w.held {
				if d.sets.has(e.set(), seat) != held {
					t.Fatalf("%x: seat %d has it: %v, want %v", hash, seat, !held, held)
				}
			}
		}
	}
	for step := range 60_000 {
		hash, seat := universe[rng.IntN(len(universe))], rng.IntN(seats)
		f := flipper{sets: &d.sets, seat: seat}
		growing := step/10_000%2 == 0
		if e := m.find(hash); rng.IntN(4) > 0 == growing {
			key := mixed(hash)
			if w := want[hash]; w == nil {
				want[hash] = &known{key: key}
			}
			want[hash].held[seat] = true
			if !m.hold(hash, key, 5, &f) {
				t.Fatal("not held")
			}
			if m.hold(hash, key+1, 5, &f) || m.hold(hash, key, 6, &f) {
				t.Fatal("one hash stands for two blocks")
			}
		} else if e.found() {
			m.release(e, &f)
			w := want[hash]
			if w.held[seat] = false; w.held == [seats]bool{} {
				delete(want, hash)
			}
		}
		f.flush()
		if step%5000 == 0 {
			for q := range m.parts {
				m.tidy(q)
			}
			check()
		}
	}
	check()
	for hash, w := range want {
		for seat, held := range w.held {
			if held {
				f := flipper{sets: &d.sets, seat: seat}
				m.release(m.find(hash), &f)
				f.flush()
			}
		}
		delete(want, hash)
	}
	check()
	for q := range m.parts {
		for k, g := range m.parts[q].groups {
			if g != (engineGroup{}) {
				t.Fatalf("array %d, group %d is not empty: %+v", q, k, g)
			}
		}
	}
}

func mixed(hash uint64) uint64 { return hash ^ hash>>31 ^ 0x5bd1e995 }
