package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"warmroute/index/internal/epoch"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// longForest has prompts of several hundred blocks that part at many places, so
// that nodes, checkpoints and runs all matter.
func longForest(s Scope, seeds int) *forest {
	t := &forest{kids: map[int][]int{}, scope: s, seeds: seeds}
	add := func(p, n int) (last int) {
		for range n {
			i := len(t.parent)
			c, k := prefixhash.Content(i+1), prefixhash.TokenRoot(s.Model, s.LoRA)
			if p >= 0 {
				k = t.key[p]
			}
			t.parent, t.content, t.key = append(t.parent, p), append(t.content, c), append(t.key, prefixhash.Link(k, c))
			t.kids[p] = append(t.kids[p], i)
			p = i
		}
		return p
	}
	trunk := add(-1, 200)
	add(trunk, 30)
	for _, from := range []int{0, 62, 63, 64, 100, 127, 198} {
		add(add(from, 5), 66)
	}
	add(add(-1, 64), 1)
	add(-1, 3)
	return t
}

// script reads events from bytes, so that a fuzzer finds short ones.
type script struct{ data []byte }

func (s *script) byte() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

// play drives an index and a model by bytes, and compares them after each event. In a
// capped index or one whose holders have several names for a block the model does not
// hold; there play checks the rules that always hold.
func play(t *testing.T, data []byte) {
	s := script{data}
	mode := s.byte()
	scheme, capped, renamed := SchemeTokens, mode&2 != 0, mode&4 != 0
	if mode&1 != 0 {
		scheme = "engine"
	}
	c := &clock{time.Unix(1_700_000_000, 0)}
	o := Options{Now: c.now, ReplicaTTL: 1000 * time.Hour, CPUTTL: 1000 * time.Hour, StorageTTL: 1000 * time.Hour, checkpointEvery: []int{4, 16, 64, 128}[mode>>6]}
	if capped {
		o.MaxScopeBlocks = 150
	}
	x := New(o)
	defer x.Close()
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 1)), x: x, clock: c, inc: map[Holder]uint64{}, tiers: 1,
		m: &model{copies: map[Holder]map[place]int{}, strays: map[Holder]map[int]modelStray{}, leases: map[Holder]map[int]time.Time{}, linked: scheme == SchemeTokens},
		f: longForest(Scope{Model: "m", Scheme: scheme, BlockSize: 16}, 1+mode>>3&1)}
	w.full = mode&16 != 0
	if mode&32 != 0 {
		w.tiers = tiers
	}
	holders := []Holder{{Replica: "r0"}, {Replica: "r1", Rank: 1}, {Replica: "r2"}}
	for _, h := range holders {
		w.begin(h)
	}
	slow := slowLookup{w: w, holders: holders}
	defer slow.leave()
	for step := 0; len(s.data) > 0 && step < 200; step++ {
		if !capped && !renamed && step%5 == 0 {
			slow.begin([]int{199, 229, 299}[step/5%3])
		}
		w.played(&s, holders, renamed)
		if err := x.check(); err != nil {
			t.Fatalf("event %d: %v", step, err)
		}
		if capped || renamed {
			continue
		}
		slow.end(step)
		for _, end := range []int{199, 229, 299, s.byte() * len(w.f.parent) / 256} {
			w.checkPath(step, w.f.path(end))
		}
	}
	slow.leave()
	slow.r = nil
	must.Do(t, x.empty())
}

// slowLookup is a lookup that has found its way along a prompt at one time, and
// reads who has it at later ones.
type slowLookup struct {
	w       *world
	holders []Holder
	nodes   []int
	reader  *epoch.Reader
	r       *scratch
	ks      *keyspace
	least   map[Holder]int32 // of the holder's matches since it began
	most    map[Holder]int32
}

func (l *slowLookup) leave() {
	if l.r != nil {
		l.reader.Leave()
	}
}

func (l *slowLookup) begin(end int) {
	l.leave()
	l.r = nil
	if l.ks = (*l.w.x.keyspaces.Load())[l.w.f.scope]; l.ks == nil {
		return
	}
	l.nodes, l.least, l.most = l.w.f.path(end), map[Holder]int32{}, map[Holder]int32{}
	l.reader, l.r = l.w.x.enter()
	l.r.path = l.ks.tree.Trace(l.r.path, l.w.f.keys(l.nodes))
	for _, h := range l.holders {
		n := l.w.m.match(h, l.nodes, l.w.clock.t).Blocks
		l.least[h], l.most[h] = n, n
	}
}

// end: nobody is credited with more than it had at some time, or less than it had
// at all times.
func (l *slowLookup) end(step int) {
	l.w.t.Helper()
	if l.r == nil {
		return
	}
	var f Found
	f.reset(l.ks.sh.slots.Words())
	l.ks.depths(l.r.path, &f)
	f.ids = l.ks.sh.slots.Holders()
	got := map[HolderID]int32{}
	for m := range f.All() {
		got[m.ID] = m.Blocks
	}
	for _, h := range l.holders {
		n := l.w.m.match(h, l.nodes, l.w.clock.t).Blocks
		l.least[h], l.most[h] = min(l.least[h], n), max(l.most[h], n)
		if n := got[l.w.x.ID(h)]; n < l.least[h] || n > l.most[h] {
			l.w.t.Fatalf("event %d: a slow lookup credits %v with %d blocks, it had %d to %d meanwhile", step, h, n, l.least[h], l.most[h])
		}
	}
}

// played is one event. Its bytes choose the kind and the holder, the place, and the size.
func (w *world) played(s *script, holders []Holder, renamed bool) {
	w.t.Helper()
	op, where, n := s.byte(), s.byte(), s.byte()
	h, tier := holders[op>>4%len(holders)], Tier(op>>6)%Tier(w.tiers)
	node := where * len(w.f.parent) / 256
	down := func(n int) []int {
		nodes := []int{node}
		for kids := w.f.kids[node]; len(nodes) < n && len(kids) > 0; kids = w.f.kids[nodes[len(nodes)-1]] {
			nodes = append(nodes, kids[(op>>2+len(nodes))%len(kids)])
		}
		return nodes
	}
	remove := func(nodes []int) {
		for _, n := range nodes {
			w.m.remove(w.f, h, tier, n)
		}
		w.apply(h, w.f.removed(h, tier, nodes...))
	}
	switch op & 15 {
	case 0, 1, 2: // a prompt from its start
		nodes := w.f.path(node)
		w.m.store(w.f, h, tier, nodes, w.full)
		w.apply(h, w.f.stored(h, tier, nodes))
	case 3, 4, 5: // some blocks, perhaps behind a hole
		nodes := down(n)
		ev := w.f.stored(h, tier, nodes)
		if renamed && n&1 != 0 {
			for i := range ev.Hashes {
				ev.Hashes[i] ^= uint64(n >> 1 & 3)
			}
			ev.Parent ^= uint64(n >> 3 & 3)
		}
		w.m.store(w.f, h, tier, nodes, w.full)
		w.apply(h, ev)
	case 6, 7, 8: // from the end of a prompt, leaf first
		nodes := w.f.path(node)
		nodes = nodes[max(0, len(nodes)-1-n):]
		for i, k := 0, len(nodes)-1; i < k; i, k = i+1, k-1 {
			nodes[i], nodes[k] = nodes[k], nodes[i]
		}
		remove(nodes)
	case 9, 10: // from its start, each a hole
		remove(down(n))
	case 11:
		remove([]int{node})
	case 12:
		w.m.clear(h)
		w.apply(h, Event{Kind: Cleared})
	case 13:
		w.begin(h)
	default:
		w.clock.t = w.clock.t.Add(time.Duration(n) * time.Second)
		w.x.Sweep()
	}
}

// FuzzEvents: whatever is reported in whatever order, an index agrees with a
// model, and its parts with each other.
func FuzzEvents(f *testing.F) {
	for mode := range 256 {
		f.Add([]byte{byte(mode),
			0x00, 199, 0, 10, 0x10, 120, 0, 20, 0x20, 250, 0, 30, // three holders of prompts that part
			0x06, 100, 40, 40, 0x13, 90, 70, 50, // an end goes, a middle comes
			0x1b, 60, 0, 60, 0x13, 55, 30, 70, // a hole, and the block that fills it
			0x23, 10, 9, 80, 0x29, 0, 3, 90, 0x0e, 0, 9, 0, 0x0c, 0, 0, 1, 0x00, 150, 0, 2, 0x1d, 0, 0, 3, 0x0f, 0, 0, 4})
	}
	f.Fuzz(play)
}

// TestModelLongPrompts does as the fuzzer does, with events that do not depend on the
// fuzzer's findings.
func TestModelLongPrompts(t *testing.T) {
	runs := 100
	if race.Enabled || testing.Short() {
		runs = 10
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 1+4*120)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		data[0] = byte(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, data) })
	}
}
