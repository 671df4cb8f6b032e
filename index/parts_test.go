package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// TestParts: whatever parts a holder clears or removes blocks of, the others stay, in scopes that
// have the same hashes.
func TestParts(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			x := newFixture(t, Options{})
			a := Holder{Replica: "a:1"}
			inc := x.Begin(a)
			pick := func(of ...string) string { return of[rng.IntN(len(of))] }
			held := map[Scope]int{} // a chain of so many blocks
			for range 400 {
				scope := Scope{Tenant: pick("", "blue"), Model: pick("m", "n"), Scheme: pick("engine", "engine:x"), BlockSize: 16}
				part := Part{scope.Tenant, pick("", scope.Model), pick("", scope.Scheme)}
				n := rng.IntN(len(x.f.key))
				lost := 0
				lose := func(rest int) {
					for s := range held {
						if part.covers(s.shardKey()) {
							lost += max(0, held[s]-rest)
							held[s] = min(held[s], rest)
						}
					}
				}
				f := *x.f
				f.scope = scope
				switch rng.IntN(6) {
				case 0:
					lose(0)
					if res := x.send(a, inc, Event{Kind: Cleared, Part: &part}); res.Removed != lost {
						t.Fatalf("a clear of %+v removes %d blocks, want %d", part, res.Removed, lost)
					}
				case 1, 2:
					lose(n)
					e := f.removed(a, TierGPU, x.all()[n:]...)
					e.Part = &part
					if res := x.send(a, inc, e); res.Removed != lost {
						t.Fatalf("a removal of %+v removes %d blocks, want %d", part, res.Removed, lost)
					}
				default:
					if n > held[scope] {
						x.send(a, inc, f.stored(a, TierGPU, x.all()[held[scope]:n]))
						held[scope] = n
					}
				}
				if rng.IntN(20) == 0 {
					x.Sweep()
				}
				total := 0
				for s, want := range held {
					total += want
					got := 0
					for _, m := range x.Lookup(nil, s, x.f.key) {
						got = int(m.Blocks)
					}
					if got != want {
						t.Fatalf("%d blocks in %+v, want %d", got, s, want)
					}
				}
				if n := x.Holdings(a); n != total {
					t.Fatalf("%d blocks are held, want %d", n, total)
				}
			}
		})
	}
}

// TestPartsOfGroups: a clear of another model leaves a cache with several groups alone; one of a
// scheme ends all of the model's.
func TestPartsOfGroups(t *testing.T) {
	x := newGroups(t, nil)
	a, p := Holder{Replica: "a:1"}, somePrompt(20*groupBlock)
	inc := x.Begin(a)
	other := groupSpace
	other.Model = "other"
	send := func(events ...Event) Result {
		t.Helper()
		return must.Get(x.Apply(&Batch{Holder: a, Incarnation: inc, Full: true, Events: events}))(t)
	}
	want := func(after string, hit int) {
		t.Helper()
		if m := findOne(t, x, a, p); int(m.Hit) != hit {
			t.Errorf("after %s: %d tokens hit, want %d", after, m.Hit, hit)
		}
	}
	step := fullAndWindow(p, 0)
	send(step...)
	send(Event{Kind: Stored, Scope: other, Hashes: []uint64{1, 2}})
	want("a step", 19*groupBlock)
	send(Event{Kind: Cleared, Part: &Part{Model: "other"}}, Event{Kind: Cleared, Part: &Part{Tenant: "blue", Model: "m"}})
	want("a clear of others", 19*groupBlock)
	window := Event{Kind: Removed, Scope: Scope{Group: 0}, Hashes: step[0].Hashes, Part: &Part{Model: "m", Scheme: "engine"}}
	send(window)
	want("a removal in a scheme that is not the group's", 19*groupBlock)
	window.Part = &Part{Model: "m", Scheme: SchemeTokens}
	send(window)
	want("a removal of the window", 0)
	send(step...)
	want("another step", 19*groupBlock)
	send(Event{Kind: Cleared, Part: &Part{Model: "m", Scheme: SchemeTokens}})
	want("a clear", 0)
	send(step[1])
	want("full attention alone", 0)
}

// TestByHashInAnyScheme: a block below the GPU is found by its hash, whichever scheme the event
// that described it was read in.
func TestByHashInAnyScheme(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	engine := *x.f
	engine.scope.Scheme = "engine"
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()[:4]), engine.stored(a, TierGPU, x.all()[:4]))
	both := Event{Kind: Stored, Scope: x.f.scope, Tier: TierCPU, ByHash: true}
	for n := range 4 {
		both.Hashes = append(both.Hashes, engine.engine(a, n), x.f.engine(a, n), uint64(n+1))
	}
	if res := x.send(a, inc, both); res.Stored != 8 || res.Dropped != 4 {
		t.Errorf("%+v, want eight stored and four dropped", res)
	}
}

// TestALossOfAPart: a cache that has lost a part is followed as before; a clear of the last part
// is one of the cache.
func TestALossOfAPart(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	start := x.clock.t
	other := *x.f
	other.scope.Model = "other"
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()), other.stored(a, TierGPU, x.all()))
	for _, c := range []struct {
		model string
		since time.Duration
		loss  Loss
	}{{"other", 0, 0}, {"m", 2 * time.Second, LossCleared}} {
		x.clock.t = x.clock.t.Add(time.Second)
		x.send(a, inc, Event{Kind: Cleared, Part: &Part{Model: c.model}})
		if e := x.Why(x.ID(a), x.f.scope, &Trail{Keys: x.f.key}); !e.Since.Equal(start.Add(c.since)) || e.Loss != c.loss {
			t.Errorf("after a clear of %s: %+v", c.model, e)
		}
	}
}

// TestRemovalsOfOtherModels: removals of two models at the same places of their nodes are told apart.
func TestRemovalsOfOtherModels(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	other := *x.f
	other.scope.Model = "other"
	x.send(a, inc, x.f.stored(a, TierGPU, x.all()), other.stored(a, TierGPU, x.all()))
	x.clock.t = x.clock.t.Add(time.Second)
	late, early := x.f.removed(a, TierGPU, x.all()[40:]...), other.removed(a, TierGPU, x.all()[20:]...)
	late.Part, early.Part = &Part{Model: "m"}, &Part{Model: "other"}
	x.send(a, inc, early)
	x.send(a, inc, other.stored(a, TierGPU, x.all()[20:40]))
	early.Hashes = early.Hashes[:20]
	x.send(a, inc, late, early)
	if e := x.Why(x.ID(a), x.f.scope, &Trail{Keys: x.f.key}); e.Blocks != 40 || !e.Removed.Equal(x.clock.t) {
		t.Errorf("%+v, want the removal behind 40 blocks", e)
	}
}
