package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
	"warmroute/render/testkit/race"
)

// branch is one continuation of a prefix that several continuations share.
type branch struct {
	hashes   []uint64
	contents []prefixhash.Content
	keys     []prefixhash.Key
}

// branches have a prefix of some blocks in common, and nothing behind it.
func branches(n, prefix, length int) (all []branch) {
	for i := range n {
		var b branch
		for k := range length {
			v := uint64(k + 1)
			if k >= prefix {
				v |= uint64(i+1) << 20
			}
			b.contents, b.hashes = append(b.contents, prefixhash.Content(v)), append(b.hashes, v*hashtable.Golden)
		}
		b.keys = prefixhash.AppendLinks(nil, prefixhash.TokenRoot("m", prefixhash.LoRA{}), b.contents)
		all = append(all, b)
	}
	return all
}

// regrower is a holder that has the prefix and one continuation at a time, takes
// blocks off its end and lets another grow there.
type regrower struct {
	x   *Index
	h   Holder
	inc uint64
	s   Scope
}

// newRegrowers are n holders that have the first blocks of a branch.
func newRegrowers(t *testing.T, x *Index, n int, b *branch, blocks int) (all []*regrower) {
	t.Helper()
	for i := range n {
		h := Holder{Replica: fmt.Sprint("r", i)}
		w := &regrower{x, h, x.Begin(h), Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}}
		if err := w.apply(w.stored(b, 0, blocks)); err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

func (w *regrower) apply(evs ...Event) error {
	_, err := w.x.Apply(&Batch{Holder: w.h, Incarnation: w.inc, Events: evs})
	return err
}

// stored is the blocks from … to - 1 of a branch.
func (w *regrower) stored(b *branch, from, to int) Event {
	ev := Event{Kind: Stored, Scope: w.s, Hashes: b.hashes[from:to], Content: b.contents[from:to]}
	if from > 0 {
		ev.HasParent, ev.Parent = true, b.hashes[from-1]
	}
	return ev
}

// removed is the blocks from to - 1 down to from.
func (w *regrower) removed(b *branch, from, to int) Event {
	ev := Event{Kind: Removed}
	for k := to - 1; k >= from; k-- {
		ev.Hashes = append(ev.Hashes, b.hashes[k])
	}
	return ev
}

// Nodes lose their ends and grow again with other blocks, in the same memory if they can.
// Each holder only ever has blocks of its own branches behind the prefix, so no lookup
// may ever credit it with more of another's. Every lookup must find the blocks that a
// holder never gives up.
func TestRegrownNodesCreditNobodyElse(t *testing.T) {
	const (
		holders, each = 3, 4 // branches of each holder
		prefix        = 70   // beyond the first checkpoint
		kept          = 9    // blocks of the prefix that are never removed
		length        = 150
	)
	rounds := 4000
	if race.Enabled || testing.Short() {
		rounds = 800
	}
	x := New(Options{checkpointEvery: 64})
	all := branches(holders*each, prefix, length)
	writers := newRegrowers(t, x, holders, &all[0], kept)
	s, owner := writers[0].s, map[HolderID]int{}
	for i, w := range writers {
		owner[x.ID(w.h)] = i
	}
	ctx, stop := context.WithCancel(context.Background())
	var readers, writing sync.WaitGroup
	var deep atomic.Int64
	for r := range 2 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 7))
			var dst []Match
			for ctx.Err() == nil {
				k := rng.IntN(len(all))
				n := kept + rng.IntN(length-kept) + 1
				dst = x.Lookup(dst[:0], s, all[k].keys[:n])
				if len(dst) != holders {
					t.Errorf("%d holders match, want %d", len(dst), holders)
					return
				}
				for _, m := range dst {
					most := n
					if owner[m.ID] != k/each {
						most = min(n, prefix)
					}
					if int(m.Reported) > most || m.Reported < kept {
						t.Errorf("holder %d matches %d of the first %d blocks of branch %d, want %d to %d", owner[m.ID], m.Reported, n, k, kept, most)
						return
					}
					if m.Reported > prefix {
						deep.Add(1)
					}
				}
			}
		})
	}
	for i, w := range writers {
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 11))
			have := kept
			for range rounds {
				b := &all[i*each+rng.IntN(each)]
				grown := have + rng.IntN(length-have) + 1
				if err := w.apply(w.stored(b, have, grown)); err != nil {
					t.Error(err)
					return
				}
				left := kept + rng.IntN(prefix-kept+1)
				if err := w.apply(w.removed(b, left, grown)); err != nil {
					t.Error(err)
					return
				}
				have = left
				if rng.IntN(100) == 0 {
					x.Sweep()
				}
			}
		})
	}
	writing.Wait()
	stop()
	readers.Wait()
	if err := x.check(); err != nil {
		t.Error(err)
	}
	if deep.Load() == 0 {
		t.Error("no lookup saw a continuation")
	}
	x.Close()
}

// One node, whose end goes and grows again all the time, once of one holder's branch and
// once of another's: a reader sees the node as it was at one time. The node is as short
// as it can be, so that it often changes under a reader.
func TestReadersSeeANodeOfOneTime(t *testing.T) {
	const prefix, length = 20, 24
	rounds := 200_000
	if race.Enabled || testing.Short() {
		rounds = 20_000
	}
	x := New(Options{})
	all := branches(2, prefix, length)
	writers := newRegrowers(t, x, 2, &all[0], prefix)
	ks := (*x.keyspaces.Load())[writers[0].s]
	id := ks.tree.Head(0, uint64(all[0].keys[0])).Node()
	var done atomic.Bool
	var readers sync.WaitGroup
	var deep [2]atomic.Int64
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // threads that are stopped anywhere
	for r := range 6 {
		i := r % 2
		readers.Go(func() {
			for n := int64(0); !done.Load(); {
				reader, r := x.enter()
				for range 16 {
					r.path = ks.tree.Trace(r.path, all[i].keys)
					if len(r.path) != 1 || r.path[0].Len <= prefix {
						continue
					}
					set := r.path[0].Set()
					for k := 0; ; k++ {
						_, next, ok := r.path[0].Change(k)
						if !ok {
							break
						}
						set = next
					}
					if n++; set != holderset.Single(i) {
						t.Errorf("set %d has %d blocks of branch %d, want set %d", set, r.path[0].Len, i, i+1)
						reader.Leave()
						return
					}
				}
				reader.Leave()
				deep[i].Store(n)
			}
		})
	}
	for n := 0; n < rounds || deep[0].Load() == 0 || deep[1].Load() == 0; n++ {
		i := n % 2
		if err := writers[i].apply(writers[i].stored(&all[i], prefix, length), writers[i].removed(&all[i], prefix, length)); err != nil || t.Failed() {
			t.Errorf("round %d: %v", n, err)
			break
		}
	}
	done.Store(true)
	readers.Wait()
	if got := ks.tree.Head(0, uint64(all[0].keys[0])).Node(); got != id || ks.tree.Blocks() != prefix {
		t.Errorf("the node is %d now, of %d blocks, want %d of %d", got, ks.tree.Blocks(), id, prefix)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
	x.Close()
}

// A lookup reads runs after keys. However the node changes in between, no holder is
// credited with blocks that it has never had: here r1 has the blocks that r0 had first up
// to block 26, and the blocks that grew there instead from block 28 on.
func TestRunsThatWereReadStayTrue(t *testing.T) {
	const prefix, length = 20, 32
	x := New(Options{})
	defer x.Close()
	s := Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}
	all := branches(2, 28, length)
	var writers [2]*regrower
	for i := range writers {
		h := Holder{Replica: fmt.Sprint("r", i)}
		writers[i] = &regrower{x, h, x.Begin(h), s}
		if err := writers[i].apply(writers[i].stored(&all[0], 0, prefix)); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(w *regrower, evs ...Event) {
		t.Helper()
		if err := w.apply(evs...); err != nil {
			t.Fatal(err)
		}
	}
	apply(writers[0], writers[0].stored(&all[0], prefix, length))
	ks := (*x.keyspaces.Load())[s]
	r := x.clock.Enter()
	defer r.Leave()
	path := ks.tree.Trace(nil, all[0].keys) // a lookup that is slow
	if _, _, several := path[0].Change(0); len(path) != 1 || path[0].Len != length || !several {
		t.Fatalf("%+v, want all blocks in several runs", path)
	}
	apply(writers[0], writers[0].removed(&all[0], 28, length))
	apply(writers[0], writers[0].stored(&all[1], 28, length))
	apply(writers[1], writers[1].stored(&all[1], prefix, length-1))
	credited := int32(0)
	for k, set := 0, path[0].Set(); ks.sh.sets.Has(set, 1); k++ {
		credited = path[0].Len
		depth, next, ok := path[0].Change(k)
		if !ok {
			break
		}
		credited, set = depth, next
	}
	if credited > 28 {
		t.Errorf("r1 is credited with %d blocks of a branch of which it has never had more than 28", credited)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
}
