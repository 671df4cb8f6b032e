package index

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
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
		must.Do(t, w.apply(w.stored(b, 0, blocks)))
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
