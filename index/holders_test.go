package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// Of many holders, more than a word of a set has bits, each matches as far as it has the prompt,
// whether many or few others end there.
func TestManyHoldersEndAnywhere(t *testing.T) {
	for seed := range uint64(6) {
		x := newFixture(t, Options{checkpointEvery: 5})
		rng := rand.New(rand.NewPCG(seed, 1))
		want := map[HolderID]int32{}
		for i := range 150 {
			h := Holder{Replica: fmt.Sprint(i)}
			blocks := 1 + rng.IntN(64)
			if i < 130 { // many at the same ends; the slots of the first words have only these
				blocks = []int{64, 10, 30, 10, 20, 5}[rng.IntN(1+int(seed))]
			}
			x.send(h, x.Begin(h), x.f.stored(h, TierGPU, x.all()[:blocks]))
			want[x.ID(h)] = int32(blocks)
		}
		for _, n := range []int{1, 7, 10, 25, 64} {
			all := x.Lookup(nil, x.f.scope, x.f.key[:n])
			for _, m := range all {
				if m.Blocks != min(want[m.ID], int32(n)) {
					t.Fatalf("holder %d matches %d of %d blocks, and has %d", m.ID, m.Blocks, n, want[m.ID])
				}
			}
			if len(all) != len(want) {
				t.Errorf("%d holders match %d blocks, want %d", len(all), n, len(want))
			}
		}
	}
}

// Of many holders whose full-attention group is not known, none matches.
func TestManyHoldersProveNothing(t *testing.T) {
	x := newFixture(t, Options{})
	for i := range 130 {
		h := Holder{Replica: fmt.Sprint(i)}
		second := x.f.stored(h, TierGPU, x.all()[:1])
		second.Scope.Group = 1
		x.send(h, x.Begin(h), x.f.stored(h, TierGPU, x.all()[:1]), second)
	}
	if all := x.Lookup(nil, x.f.scope, x.f.key); len(all) != 0 {
		t.Errorf("%d holders match", len(all))
	}
}

// A holder beyond the slots of a model's shard is refused, and its blocks are dropped.
func TestHoldersOfAModelAreBounded(t *testing.T) {
	x := newFixture(t, Options{})
	for i := range MaxHolders {
		h := Holder{Replica: fmt.Sprint(i)}
		if res := x.send(h, x.Begin(h), x.f.stored(h, TierGPU, x.all()[:1])); res.Stored != 1 {
			t.Fatalf("holder %d: %+v", i, res)
		}
	}
	entry := Entry{Scope: x.f.scope, Holder: b, Key: x.f.key[0], Hash: 1}
	if res := x.send(a, x.Begin(a), x.f.stored(a, TierGPU, x.all())); res.Stored != 0 || res.Dropped != 64 {
		t.Errorf("one holder more: %+v, want 64 dropped", res)
	}
	if res := x.Restore(func(yield func(Entry) bool) { yield(entry) }); res.Stored != 0 || res.Dropped != 1 {
		t.Errorf("one holder more, restored: %+v, want 1 dropped", res)
	}
	if n := len(x.Lookup(nil, x.f.scope, x.f.key)); n != MaxHolders {
		t.Errorf("%d holders match, want %d", n, MaxHolders)
	}
}

// A number is given again when minFreeIDs others wait, and not before. Pages of numbers are made as they
// are needed.
func TestNumbersAreGivenAgainInOrder(t *testing.T) {
	x := newFixture(t, Options{})
	for i := range minFreeIDs + 1 {
		h := Holder{Replica: fmt.Sprint(i)}
		if id := x.ID(h); int(id) != i {
			t.Fatalf("number %d is given in place of %d", id, i)
		}
		x.Remove(h.Replica)
	}
	for i := range 3 {
		if id := x.ID(Holder{Replica: fmt.Sprint("again ", i)}); (i == 0) != (id == 0) {
			t.Errorf("number %d is given in place %d", id, i)
		}
	}
	pages := len(*x.pages.Load())
	if want := (minFreeIDs+3)/idsPerPage + 1; pages != want {
		t.Errorf("%d pages, want %d", pages, want)
	}
	for _, id := range []HolderID{HolderID(pages * idsPerPage), HolderID(pages*idsPerPage - 1), -1} {
		if h, ok := x.HolderOf(id); ok {
			t.Errorf("number %d stands for %v", id, h)
		}
	}
}

// A lease and a batch show that a holder is alive.
func TestSignsOfLife(t *testing.T) {
	for name, alive := range map[string]func(x *fixture, inc uint64){
		"a lease": func(x *fixture, _ uint64) { lend(t, x.Index, x.f.scope, a, x.f.key[:1], x.clock.t.Add(time.Hour)) },
		"a batch": func(x *fixture, inc uint64) { x.send(a, inc) },
	} {
		x := newFixture(t, Options{ReplicaTTL: time.Minute})
		inc := x.Begin(a)
		x.send(a, inc, x.f.stored(a, TierGPU, x.all()))
		x.clock.t = x.clock.t.Add(50 * time.Second)
		alive(x, inc)
		if last := x.LastReport(x.ID(a)); !last.Equal(x.clock.t) {
			t.Errorf("%s: the last report was %v ago", name, x.clock.t.Sub(last))
		}
		x.clock.t = x.clock.t.Add(time.Minute)
		if x.Sweep(); x.Holdings(a) != 64 {
			t.Errorf("%s: the holder is dropped", name)
		}
		x.clock.t = x.clock.t.Add(1)
		if x.Sweep(); x.Holdings(a) != 0 {
			t.Errorf("%s: the holder is kept", name)
		}
	}
}

// An unknown holder has nothing, and no holder has anything in a tier that there is not.
func TestHoldingsOfNobody(t *testing.T) {
	x := newFixture(t, Options{})
	other := x.f.stored(a, TierGPU, x.all()[:5])
	other.Scope.Model = "other"
	x.send(a, x.Begin(a), x.f.stored(a, TierGPU, x.all()), x.f.stored(a, TierStorage, x.all()[:3]), other)
	wanted := func(_, model string) bool { return model == "m" }
	for h, want := range map[Holder]int{a: 64, b: 0} {
		if n := x.HoldingsOf(h, wanted); n != want {
			t.Errorf("%v holds %d blocks, want %d", h, n, want)
		}
		if n := x.TierHoldings(h, tiers); n != 0 {
			t.Errorf("%v holds %d blocks nowhere", h, n)
		}
	}
	if n := x.TierHoldings(a, TierStorage); n != 3 || x.HoldingsOf(a, nil) != 69 {
		t.Errorf("%d blocks in storage and %d on GPU, want 3 and 69", n, x.HoldingsOf(a, nil))
	}
}

// Of several groups that a holder calls full attention the first counts.
func TestTheFirstFullGroupCounts(t *testing.T) {
	x := newFixture(t, Options{})
	inc := x.Begin(a)
	for group, blocks := range []int{64, 3} {
		ev := x.f.stored(a, TierGPU, x.all()[:blocks])
		ev.Scope.Group, ev.Spec = group, "full_attention"
		x.send(a, inc, ev)
	}
	x.wantReported(a, 64)
	x.f.scope.Group = 1
	x.wantReported(a, 0)
}

// Found holds plain matches again after a lookup in which groups decided.
func TestFoundForgetsGroups(t *testing.T) {
	x := newGroups(t, time.Now)
	h, p := Holder{Replica: "a"}, somePrompt(16*groupBlock+1)
	must.Get(x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: fullAndWindow(p[:16*groupBlock], 0)}))(t)
	s, keys := groupSpace, p.AppendChain(nil, Keying{Unit: groupBlock})
	s.Group = 1
	var f Found
	for _, prompt := range []Prompt{p, nil, p} {
		x.FindPrompt(&f, s, keys, prompt)
		all := f.AppendTo(nil)
		if len(all) != 1 || f.Len() != 1 || all[0].Blocks != 16 || all[0].Grouped != (prompt != nil) || all[0].Grouped && all[0].Hit != 16*groupBlock {
			t.Errorf("%+v with prompt %v", all, prompt != nil)
		}
	}
	f.Set([]Match{{ID: 3}})
	if f.Len() != 1 {
		t.Errorf("%d matches of one that was set", f.Len())
	}
	x.Find(&f, s, []prefixhash.Key{1})
	if f.Len() != 0 {
		t.Errorf("%d matches of an unknown prompt", f.Len())
	}
}

// A replica whose reporter begins again while it leaves has no block left, also if the removal has to wait
// for scopes that are made or dropped meanwhile.
func TestReplicaLeavesWhileItsReporterBegins(t *testing.T) {
	x := newFixture(t, Options{})
	x.send(b, x.Begin(b), x.f.stored(b, TierCPU, x.all()))
	for range 50 {
		x.Begin(a)
		var both sync.WaitGroup
		x.mu.Lock()
		both.Go(func() { x.Remove(a.Replica) })
		runtime.Gosched()
		both.Go(func() {
			_, _ = x.Apply(&Batch{Holder: a, Incarnation: x.Begin(a), Events: []Event{x.f.stored(a, TierCPU, x.all())}})
		})
		for range 100 {
			runtime.Gosched()
		}
		x.mu.Unlock()
		both.Wait()
		x.Remove(a.Replica)
	}
	x.Sweep()
	if n := len(x.Lookup(nil, x.f.scope, x.f.key)); n > 1 {
		t.Errorf("%d holders match, want the one that stays", n)
	}
	for _, sh := range x.allShards() {
		if n := len(sh.slots.Dead()); n > 0 || sh.slots.Live != (holderset.Mask{1}) {
			t.Errorf("slots %v are taken, and %d are dead: want one", sh.slots.Live, n)
		}
	}
	x.sound()
}
