package prefixhash

import (
	"slices"
	"testing"
)

// TestMarks: steps are whole units and grow with the prompt, up to a bound.
func TestMarks(t *testing.T) {
	for _, unit := range []int{1, 16, 64, 100, 512, 3000} {
		m, s := MarksOf(unit), idSteps
		if unit == TextUnit {
			s = textSteps
		}
		if m != MarksOf(unit) {
			t.Errorf("unit %d: the marks are computed again", unit)
		}
		for n := range m.Len() {
			at, step := m.End(n), m.End(n+1)-m.End(n)
			if step%unit != 0 || step > max(unit, s.most) || step > max(unit, TextUnit, at/s.part) || step < unit {
				t.Fatalf("unit %d: a step of %d tokens at %d", unit, step, at)
			}
			if m.Within(at) != n || m.Within(at+step-1) != n {
				t.Fatalf("unit %d: %d and %d marks within %d and %d tokens, want %d", unit, m.Within(at), m.Within(at+step-1), at, at+step-1, n)
			}
		}
		if m.End(m.Len()) < maxMarked || m.Within(1<<40) > m.Len() {
			t.Errorf("unit %d: the marks end at %d, with %d in all", unit, m.End(m.Len()), m.Within(1<<40))
		}
	}
}

// TestPickAndSpread: the keys at marks are those of the units that end there, and for a
// common beginning of prompts a common number of units stands.
func TestPickAndSpread(t *testing.T) {
	const unit = 16
	m, keys := MarksOf(unit), make([]Key, 1000)
	for i := range keys {
		keys[i] = Key(i + 1)
	}
	picked := m.AppendPicked(nil, keys)
	if len(picked) != m.Within(len(keys)*unit) {
		t.Fatalf("%d keys", len(picked))
	}
	for i, k := range picked {
		if int(k)*unit != m.End(i+1) {
			t.Fatalf("key %d at mark %d, which ends at token %d", k, i, m.End(i+1))
		}
	}
	spread := m.Spread(nil, picked)
	if len(spread)*unit != m.End(len(picked)) {
		t.Errorf("%d keys of units", len(spread))
	}
	for i, k := range picked {
		if spread[m.End(i+1)/unit-1] != k {
			t.Fatalf("mark %d is not at its unit", i)
		}
	}
	short := m.Spread(nil, picked[:20])
	if !slices.Equal(short, spread[:len(short)]) {
		t.Error("prompts with a common beginning have no common keys")
	}
	seen := map[Key]bool{}
	for _, k := range spread {
		if seen[k] {
			t.Fatal("a key stands for two units")
		}
		seen[k] = true
	}
}
