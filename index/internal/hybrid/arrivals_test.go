package hybrid

import (
	"fmt"
	"testing"

	"warmroute/prefixhash"
)

// TestKeyRing: the ring returns the keys that were put, until others lie over them.
func TestKeyRing(t *testing.T) {
	r := new(keyRing)
	keys := make([]prefixhash.Key, ringKeys/4)
	for i := range keys {
		keys[i] = prefixhash.Key(i + 1)
	}
	other := append([]prefixhash.Key(nil), keys[:100]...)
	for i := 60; i < 100; i++ {
		other[i] = 7
	}
	at := r.put(keys)
	for range 3 {
		r.put(keys)
	}
	if n := r.common(at, len(keys), keys); n != len(keys) {
		t.Errorf("%d of %d", n, len(keys))
	}
	if n := r.common(at, len(keys), other); n != 60 {
		t.Errorf("%d of 60 are shared", n)
	}
	if r.put(keys[:1]); r.common(at, len(keys), keys) != 0 {
		t.Error("keys that were overwritten count")
	}
}

// TestPlacesArePacked: the last place up to a block, from the first place on, in steps.
func TestPlacesArePacked(t *testing.T) {
	p := pack(Places{From: 48, To: 176, Step: 64}, 16) // blocks 3, 7 and 11
	for to, want := range []int{0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 11, 11} {
		equal(t, fmt.Sprint("up to ", to), placed(p, to), want)
	}
	equal(t, "no place", placed(0, 5), 0)
}

// TestArrivalsEndAndAreTakenBack: an arrival counts for prompts that share its beginning, a
// block behind a place if the member drops one, until its time, or until
// it is taken back.
func TestArrivalsEndAndAreTakenBack(t *testing.T) {
	g := newTestModel()
	m, _ := newMember(g, 7, &Settings{Eagle: 3, EagleKnown: true})
	apply(m, Keying{}, seen(0, 16, "full_attention", 0), seen(1, 16, "sliding_window", 64))
	other, _ := newMember(g, 8, &Settings{Eagle: 3, EagleKnown: true})
	apply(other, Keying{}, seen(0, 16, "full_attention", 0), seen(1, 16, "sliding_window", 64))
	n := &nodesByHand{}
	keys := length(160).AppendChain(nil, Keying{Unit: 16})
	var l Lookup
	arrive := func(m *Member, until int64) {
		l.Arrive(m, Arrival{Asked: Home{Block: 16}, Keys: keys, Until: until, Now: 100}, n)
	}
	coming := func(keys []prefixhash.Key, now int64) (all []string) {
		for id, blocks := range g.Coming(keys, now) {
			all = append(all, fmt.Sprint(id, ":", blocks))
		}
		return all
	}
	equal(t, "before any", g.HasArrivals(), false)
	arrive(m, 100) // too late
	equalAll(t, "ended", coming(keys, 99), nil)
	arrive(m, 200)
	equal(t, "with one", g.HasArrivals(), true)
	equalAll(t, "the same prompt", coming(keys, 199), []string{"7:9"})
	equalAll(t, "at its end", coming(keys, 200), nil)
	equalAll(t, "nothing in common", coming([]prefixhash.Key{1, 2}, 199), nil)
	equalAll(t, "no keys", coming(nil, 199), nil)
	equalAll(t, "a block less", coming(keys[:9], 199), nil)
	arrive(other, 300)
	equalAll(t, "two members", coming(keys, 199), []string{"7:9", "8:9"})
	equalAll(t, "one has ended", coming(keys, 200), []string{"8:9"})
	m.Withdraw(keys[:3])
	equalAll(t, "another prompt is taken back", coming(keys, 149), []string{"7:9", "8:9"})
	m.Withdraw(keys)
	equalAll(t, "this one is", coming(keys, 149), []string{"8:9"})
	l.Arrive(m, Arrival{Keys: keys, Until: 200, Now: 100}, n) // blocks of no size
	l.Arrive(m, Arrival{Asked: Home{Block: 16}, Keys: make([]prefixhash.Key, ringKeys/4+1), Until: 200, Now: 100}, n)
	equalAll(t, "it does not arrive", coming(keys, 149), []string{"8:9"})
	equalAll(t, "nor does a prompt that is too long", coming(make([]prefixhash.Key, 5), 149), nil)
	l.Arrive(m, Arrival{Asked: Home{Block: 16}, Keys: make([]prefixhash.Key, ringKeys/4), Until: 200, Now: 100}, n)
	equal(t, "the longest arrives", len(coming(make([]prefixhash.Key, ringKeys/4), 149)), 1)
}

// TestArrivalsContinueWhatIsThere: the places that a prompt leaves depend on the blocks that
// the member hits, by events and by earlier arrivals.
func TestArrivalsContinueWhatIsThere(t *testing.T) {
	g := newTestModel()
	m, _ := newMember(g, 7, known)
	plain, _ := newMember(g, 8, known)
	apply(plain, Keying{}, seen(0, 16, "full_attention", 0))
	equal(t, "full attention alone is foreseen", plain.Foreseen(), false)
	apply(m, Keying{}, seen(0, 16, "full_attention", 0), seen(1, 16, "sliding_window", 64))
	equal(t, "a window is foreseen", m.Foreseen(), true)
	var l Lookup
	plan := m.joined.Load()
	n := &nodesByHand{depths: map[Home]map[int32]depth{{0, 16, 0}: {7: {held: 5, hit: 3}}}}
	at := func(tokens, block int) InFlight {
		keys := length(tokens).AppendChain(nil, Keying{Unit: block})
		return l.inFlight(m, plan, &Arrival{Asked: Home{Block: block}, Keys: keys, Now: 100}, n)
	}
	equal(t, "by events", at(165, 16), InFlight{Tokens: 160, Hit: 48, Full: 80})
	equal(t, "keys of other blocks", at(165, 32), InFlight{Tokens: 160, Alone: true})
	l.Arrive(m, Arrival{Asked: Home{Block: 16}, Keys: length(100).AppendChain(nil, Keying{Unit: 16}), Until: 200, Now: 100}, n)
	equal(t, "by an arrival", at(165, 16), InFlight{Tokens: 160, Hit: 96, Full: 96})
	equal(t, "by an arrival that parts early", at(80, 16), InFlight{Tokens: 80, Hit: 80, Full: 80})
}

// TestArrivalsOfPairs: SGLang hits a page of a prompt in flight if the token behind it is
// shared, too.
func TestArrivalsOfPairs(t *testing.T) {
	g := newTestModel()
	m, _ := newMember(g, 7, &Settings{Rule: RuleSGLang, EagleKnown: true})
	stored := seen(0, 1, "", 0)
	stored.Ahead = 1
	apply(m, Keying{}, stored)
	equal(t, "pairs are foreseen", m.Foreseen(), true)
	keys := length(112).AppendChain(nil, Keying{Unit: 1})
	var l Lookup
	l.Arrive(m, Arrival{Asked: Home{Block: 1}, Keys: keys[:111], Until: 200, Now: 100}, &nodesByHand{})
	for _, shared := range []int{1, 2, 50, 111} {
		got := 0
		for _, blocks := range g.Coming(keys[:shared], 150) {
			got = blocks
		}
		equal(t, fmt.Sprint(shared, " tokens shared"), got, shared-1)
	}
}
