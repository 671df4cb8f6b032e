package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// model is the truth, as simple as it can be: for each holder, how many copies
// of which block it has in which tier, and until when it is said to have others.
type model struct {
	copies map[Holder]map[place]int
	strays map[Holder]map[int]modelStray // on GPU, and left out until the block is stored again, or the one before it
	leases map[Holder]map[int]time.Time
	linked bool // blocks are linked by the index; else stored by key
}

type modelStray struct {
	copies int
	keyed  bool // by the key of the block before it
}

type place struct {
	tier Tier
	node int
}

// knows reports whether a holder has reported a block that it has.
func (m *model) knows(h Holder, node int) bool {
	for p, n := range m.copies[h] {
		if n > 0 && p.node == node {
			return true
		}
	}
	return false
}

// leavesOut reports whether blocks are left out: they have no key without their parent's, or
// are on GPU and their parent is not.
func (m *model) leavesOut(t *forest, h Holder, tier Tier, nodes []int) bool {
	parent := t.parent[nodes[0]]
	return parent >= 0 && (m.linked && !m.knows(h, parent) || tier == TierGPU && m.copies[h][place{TierGPU, parent}] == 0)
}

func (m *model) store(t *forest, h Holder, tier Tier, nodes []int, full bool) {
	if m.leavesOut(t, h, tier, nodes) {
		if tier == TierGPU {
			m.leaveOut(t, h, nodes, full)
		}
		return
	}
	for _, n := range nodes {
		p, more := place{tier, n}, 0
		if tier == TierGPU {
			more = m.strays[h][n].copies
			delete(m.strays[h], n)
		}
		if m.copies[h][p]+more == 0 || !full {
			more++
		}
		m.copies[h][p] += more
	}
	if tier == TierGPU {
		for _, n := range nodes {
			m.rejoin(t, h, n)
		}
	}
}

func (m *model) leaveOut(t *forest, h Holder, nodes []int, full bool) {
	parent := t.parent[nodes[0]]
	keyed := !m.linked || m.knows(h, parent) || m.strays[h][parent].keyed
	for _, n := range nodes {
		one := m.strays[h][n]
		if one.copies == 0 || !full {
			one.copies++
		}
		m.strays[h][n] = modelStray{one.copies, one.keyed || keyed}
	}
}

// rejoin makes the strays behind a block copies.
func (m *model) rejoin(t *forest, h Holder, n int) {
	for _, kid := range t.kids[n] {
		if one := m.strays[h][kid]; one.keyed {
			delete(m.strays[h], kid)
			m.copies[h][place{TierGPU, kid}] = one.copies
			m.rejoin(t, h, kid)
		}
	}
}

// remove removes a block, and returns how many the holder had on GPU behind it, which nobody hits
// any more.
func (m *model) remove(t *forest, h Holder, tier Tier, n int) (orphaned int) {
	if p := (place{tier, n}); m.copies[h][p] > 0 {
		m.copies[h][p]--
		if tier == TierGPU {
			return m.forgetBehind(t, h, n)
		}
	} else if one := m.strays[h][n]; tier == TierGPU && one.copies > 1 {
		m.strays[h][n] = modelStray{one.copies - 1, one.keyed}
	} else if tier == TierGPU {
		delete(m.strays[h], n)
	}
	return 0
}

// forgetBehind forgets what a holder has on GPU behind a block, if the block is gone.
func (m *model) forgetBehind(t *forest, h Holder, n int) (blocks int) {
	if m.copies[h][place{TierGPU, n}] > 0 {
		return 0
	}
	for _, kid := range t.kids[n] {
		if p := (place{TierGPU, kid}); m.copies[h][p] > 0 {
			m.strays[h][kid] = modelStray{m.copies[h][p], true}
			delete(m.copies[h], p)
			blocks += 1 + m.forgetBehind(t, h, kid)
		}
	}
	return blocks
}

func (m *model) clear(h Holder) {
	m.copies[h] = map[place]int{}
	m.strays[h] = map[int]modelStray{}
	m.leases[h] = map[int]time.Time{}
}

// leased returns the blocks that a holder has for a time.
func (m *model) leased(h Holder, now time.Time) (nodes []int) {
	for n, until := range m.leases[h] {
		if until.After(now) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (m *model) match(h Holder, nodes []int, now time.Time) (out Match) {
	run := func(has func(n int) bool) (n int32) {
		for int(n) < len(nodes) && has(nodes[n]) {
			n++
		}
		return n
	}
	gpu := func(n int) bool { return m.copies[h][place{TierGPU, n}] > 0 || m.leases[h][n].After(now) }
	cpu := func(n int) bool { return gpu(n) || m.copies[h][place{TierCPU, n}] > 0 }
	out.Blocks, out.Lower = run(gpu), run(cpu)
	out.Storage = run(func(n int) bool { return cpu(n) || m.copies[h][place{TierStorage, n}] > 0 })
	return out
}

// forest is a fixed set of blocks. Holders with different seeds give one block
// different engine hashes, as vLLM does without PYTHONHASHSEED.
type forest struct {
	parent  []int
	content []prefixhash.Content
	key     []prefixhash.Key
	kids    map[int][]int
	scope   Scope
	seeds   int
}

func newForest(rng *rand.Rand, n, seeds int, s Scope) *forest {
	t := &forest{kids: map[int][]int{}, scope: s, seeds: seeds}
	for i := range n {
		p := -1
		switch {
		case i > 0 && rng.IntN(10) > 1:
			p = i - 1
		case i > 0:
			p = rng.IntN(i+1) - 1
		}
		c := prefixhash.Content(rng.Uint64())
		k := prefixhash.TokenRoot(s.Model, s.LoRA)
		if p >= 0 {
			k = t.key[p]
		}
		t.parent, t.content, t.key = append(t.parent, p), append(t.content, c), append(t.key, prefixhash.Link(k, c))
		t.kids[p] = append(t.kids[p], i)
	}
	return t
}

func (t *forest) seed(h Holder) int { return h.Rank % t.seeds }

func (t *forest) engine(h Holder, n int) uint64 {
	if t.scope.Scheme != SchemeTokens {
		return uint64(t.key[n])
	}
	return uint64(t.key[n])*hashtable.Golden ^ uint64(t.seed(h)+1)<<32
}

func (t *forest) path(n int) (p []int) {
	for ; n >= 0; n = t.parent[n] {
		p = append(p, n)
	}
	slices.Reverse(p)
	return p
}

func (t *forest) keys(nodes []int) (k []prefixhash.Key) {
	for _, n := range nodes {
		k = append(k, t.key[n])
	}
	return k
}

func (t *forest) stored(h Holder, tier Tier, nodes []int) Event {
	ev := Event{Kind: Stored, Scope: t.scope, Tier: tier}
	if p := t.parent[nodes[0]]; p >= 0 {
		ev.HasParent, ev.Parent = true, t.engine(h, p)
	}
	for _, n := range nodes {
		ev.Hashes = append(ev.Hashes, t.engine(h, n))
		if t.scope.Scheme == SchemeTokens {
			ev.Content = append(ev.Content, t.content[n])
		}
	}
	return ev
}

func (t *forest) removed(h Holder, tier Tier, nodes ...int) Event {
	ev := Event{Kind: Removed, Tier: tier, Scope: Scope{Group: t.scope.Group}}
	for _, n := range nodes {
		ev.Hashes = append(ev.Hashes, t.engine(h, n))
	}
	return ev
}

// taken is removed by keys, as a reporter that lends blocks takes them back.
func (t *forest) taken(nodes []int) Event {
	ev := Event{Kind: Removed, Part: &Part{Model: t.scope.Model, Scheme: t.scope.Scheme}, Scope: Scope{Group: t.scope.Group}}
	for _, key := range t.keys(nodes) {
		ev.Hashes = append(ev.Hashes, uint64(key))
	}
	return ev
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// world drives an index and a model with the same random operations.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	x     *Index
	m     *model
	f     *forest
	clock *clock
	inc   map[Holder]uint64
	tiers int
	spec  bool
	full  bool
}

func newWorld(t *testing.T, seed uint64, seeds int, scheme string) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &clock{time.Unix(1_700_000_000, 0)}
	x := New(Options{Now: c.now, checkpointEvery: 3, CPUTTL: 1000 * time.Hour, StorageTTL: 1000 * time.Hour})
	t.Cleanup(x.Close)
	w := &world{
		t: t, rng: rng, x: x, clock: c, inc: map[Holder]uint64{}, tiers: 1,
		m: &model{copies: map[Holder]map[place]int{}, strays: map[Holder]map[int]modelStray{}, leases: map[Holder]map[int]time.Time{}, linked: scheme == SchemeTokens},
		f: newForest(rng, 80, seeds, Scope{Model: "m", Scheme: scheme, BlockSize: 16}),
	}
	for i := range 5 {
		w.begin(Holder{Replica: fmt.Sprintf("10.0.0.%d:8000", i/2), Rank: i})
	}
	return w
}

func (w *world) begin(h Holder) {
	w.m.clear(h)
	w.inc[h] = w.x.Begin(h)
}

func (w *world) holder() Holder {
	i := w.rng.IntN(5)
	return Holder{Replica: fmt.Sprintf("10.0.0.%d:8000", i/2), Rank: i}
}

func (w *world) apply(h Holder, evs ...Event) Result {
	w.t.Helper()
	return must.Get(w.x.Apply(&Batch{Holder: h, Incarnation: w.inc[h], Events: evs, Full: w.full}))(w.t)
}

func (w *world) step() {
	h, tier := w.holder(), Tier(w.rng.IntN(w.tiers))
	switch op := w.rng.IntN(100); {
	case op < 50:
		n := w.rng.IntN(len(w.f.parent))
		if w.rng.IntN(3) == 0 { // a whole prompt
			n = w.f.path(n)[0]
		}
		nodes := []int{n}
		for range w.rng.IntN(12) {
			kids := w.f.kids[n]
			if len(kids) == 0 {
				break
			}
			n = kids[w.rng.IntN(len(kids))]
			nodes = append(nodes, n)
		}
		want := w.m.stored(w.f, h, tier, nodes)
		w.m.store(w.f, h, tier, nodes, w.full)
		w.wantResult(want, w.apply(h, w.f.stored(h, tier, nodes)))
	case op < 85:
		var nodes []int
		for range 1 + w.rng.IntN(4) {
			if n := w.rng.IntN(len(w.f.parent)); !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
		}
		w.remove(h, tier, nodes)
	case op < 87:
		w.m.clear(h)
		w.apply(h, Event{Kind: Cleared})
	case op < 88:
		w.begin(h)
	case op < 89:
		w.x.Remove(h.Replica)
		for o := range w.inc {
			if o.Replica == h.Replica {
				if _, err := w.x.Apply(&Batch{Holder: o, Incarnation: w.inc[o], Events: []Event{w.f.stored(o, TierGPU, []int{0})}}); !errors.Is(err, ErrIncarnation) {
					w.t.Fatalf("batch of a removed replica: %v, want ErrIncarnation", err)
				}
				w.begin(o)
			}
		}
	case op < 93:
		w.x.Sweep()
	case op < 98 && w.spec:
		w.lease(h)
	case w.spec:
		w.clock.t = w.clock.t.Add(time.Duration(w.rng.IntN(500)) * time.Millisecond)
		w.x.expire()
	}
}

// lease leases a path for a holder, or takes it back.
func (w *world) lease(h Holder) {
	nodes := w.f.path(w.rng.IntN(len(w.f.parent)))
	held := w.m.leases[h]
	if w.rng.IntN(3) == 0 {
		for _, n := range nodes {
			delete(held, n)
		}
		w.apply(h, w.f.taken(nodes))
		return
	}
	until := w.clock.t.Add(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
	lend(w.t, w.x, w.f.scope, h, w.f.keys(nodes), until)
	until = until.Add(tenth - 1).Truncate(tenth)
	for _, n := range nodes {
		if until.After(held[n]) {
			held[n] = until
		}
	}
}

func (w *world) check(step int) {
	w.t.Helper()
	if step%4 == 0 { // half of the time goes into it
		if err := w.x.check(); err != nil {
			w.t.Fatalf("step %d: %v", step, err)
		}
	}
	for range 3 {
		w.checkPath(step, w.f.path(w.rng.IntN(len(w.f.parent))))
	}
	names := 0
	for h, held := range w.m.copies {
		blocks, known := 0, map[int]bool{}
		for p, n := range held {
			if n > 0 {
				known[p.node] = true
				if p.tier == TierGPU {
					blocks++
				}
			}
		}
		names += len(known)
		if got := w.x.Holdings(h); got != blocks {
			w.t.Fatalf("step %d: %v holds %d blocks, want %d", step, h, got, blocks)
		}
	}
	if step%16 != 0 {
		return
	}
	w.x.Sweep()
	w.checkStats(step)
	if got := w.x.counts(); got.Hashes != names {
		w.t.Fatalf("step %d: %d engine hashes, want %d", step, got.Hashes, names)
	}
}

func (w *world) checkPath(step int, nodes []int) {
	w.t.Helper()
	got := map[HolderID]Match{}
	for _, m := range w.x.Lookup(nil, w.f.scope, w.f.keys(nodes)) {
		if _, twice := got[m.ID]; twice {
			w.t.Fatalf("step %d: holder %d matched twice", step, m.ID)
		}
		got[m.ID] = m
	}
	for h := range w.inc {
		want, m := w.m.match(h, nodes, w.clock.t), got[w.x.ID(h)]
		if m.Blocks != want.Blocks || m.Lower != want.Lower || m.Storage != want.Storage {
			w.t.Fatalf("step %d: %v of %d blocks: got %+v, want %+v", step, h, len(nodes), m, want)
		}
	}
}

func (w *world) run(steps int) {
	w.t.Helper()
	if race.Enabled {
		steps /= 10
	}
	for i := range steps {
		w.step()
		w.check(i)
	}
	must.Do(w.t, w.x.empty())
}

func TestModelHolesCopies(t *testing.T) {
	for seed := range uint64(20) {
		newWorld(t, seed, 1, SchemeTokens).run(1500)
	}
}

func TestModelRandomRoots(t *testing.T) {
	for seed := range uint64(10) {
		newWorld(t, seed, 3, SchemeTokens).run(1500)
	}
}

func TestModelEngineKeys(t *testing.T) {
	for seed := range uint64(10) {
		newWorld(t, seed, 1, "engine").run(1500)
	}
}

func TestModelFullReports(t *testing.T) {
	for seed := range uint64(5) {
		w := newWorld(t, seed, 1, SchemeTokens)
		w.full = true
		w.run(1500)
	}
}

func TestModelTiers(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, seed, 2, SchemeTokens)
		w.tiers = tiers
		w.run(1500)
	}
}

// TestModelLeases: besides reported blocks, all entries with deadlines. At the end the
// clock runs out, and nothing may be left.
func TestModelLeases(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, seed, 1, SchemeTokens)
		w.tiers, w.spec = 1+int(seed)%tiers, true
		w.run(1500)
		w.clock.t = w.clock.t.Add(time.Minute)
		w.x.expire()
		if n := w.x.expiring.Load(); n != 0 {
			t.Errorf("seed %d: %d deadlines left", seed, n)
		}
	}
}
