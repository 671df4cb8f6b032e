package radix

import (
	"strings"
	"testing"
)

// Check finds each damage that is done to sound nodes. The first node
// has 64 blocks of slot 0, 20 of them also of slot 1; a node of one block follows its tenth.
func TestCheckFindsDamage(t *testing.T) {
	const runs, parent, counted = "do not", "behind offset", "counts"
	for name, c := range map[string]struct {
		damage func(f *forest, nd *node)
		says   string
	}{
		"a block less":       {func(_ *forest, nd *node) { nd.state.Store(nd.state.Load() - 1) }, counted},
		"no block":           {func(_ *forest, nd *node) { nd.state.Store(stateRuns) }, "no blocks but holders"},
		"blocks":             {func(f *forest, _ *node) { f.tree.blocks++ }, counted},
		"a head":             {func(f *forest, nd *node) { f.tree.heads.Delete(nd.key(0), uint64(At(1, 0))) }, "first key"},
		"another head":       {func(f *forest, nd *node) { f.tree.heads.Put(nd.key(3), uint64(At(1, 3))) }, counted},
		"a mark of a run":    {func(_ *forest, nd *node) { nd.runWords()[0] += 1 << markShift }, "has mark"},
		"a mark":             {func(f *forest, _ *node) { f.nodes.at(2).mark++ }, "its mark is"},
		"a checkpoint":       {func(f *forest, nd *node) { f.tree.checkpoints.Delete(nd.key(63), uint64(At(1, 63))) }, "the checkpoint of"},
		"another checkpoint": {func(f *forest, nd *node) { f.tree.checkpoints.Put(nd.key(3), uint64(At(1, 3))) }, counted},
		"runs that grow": {func(_ *forest, nd *node) {
			nd.runWords()[0] = packRun(Run{End: 20, Set: 1, mark: unpackRun(nd.runWords()[0]).mark})
		}, runs},
		"equal runs": {func(_ *forest, nd *node) {
			nd.runWords()[1] = packRun(Run{End: runEnd, Set: unpackRun(nd.runWords()[0]).Set})
		}, runs},
		"a run of nothing": {func(_ *forest, nd *node) {
			nd.runWords()[0] = packRun(Run{End: 0, Set: unpackRun(nd.runWords()[0]).Set})
		}, runs},
		"a run of nobody":    {func(_ *forest, nd *node) { nd.runWords()[1] = packRun(Run{End: runEnd}) }, "nobody"},
		"one run":            {func(_ *forest, nd *node) { nd.runWords()[0] |= runEnd }, "with runs"},
		"a set besides runs": {func(_ *forest, nd *node) { nd.state.Store(nd.state.Load() | 1<<stateSetShift) }, "with runs"},
		"depth":              {func(f *forest, _ *node) { f.nodes.at(2).depth++ }, parent},
		"depth of a start":   {func(_ *forest, nd *node) { nd.depth = 64 }, "begins prompts at"},
		"another parent":     {func(f *forest, _ *node) { f.nodes.at(2).parent-- }, parent},
		"no parent's block":  {func(f *forest, nd *node) { c := f.nodes.at(2); c.parent, c.depth, nd.deepest = At(1, 64), 65, 64 }, parent},
		"a parent elsewhere": {func(f *forest, _ *node) {
			other := new(Tree)
			f.nodes.Add(other, 1)
			f.nodes.at(2).tree = 1
			other.heads.Put(headOf(At(1, 9), f.nodes.at(2).key(0)), uint64(At(2, 0)))
		}, parent},
		"a child":             {func(_ *forest, nd *node) { nd.child = 0 }, "does not list"},
		"a child of others":   {func(f *forest, _ *node) { f.nodes.at(2).child = 1 }, "the parent"},
		"a child before it":   {func(f *forest, _ *node) { f.nodes.at(2).prev = 7 }, "before it in the list"},
		"deepest":             {func(_ *forest, nd *node) { nd.deepest = 8 }, "the deepest is said"},
		"published":           {func(_ *forest, nd *node) { nd.published = 63 }, "published"},
		"capacity":            {func(_ *forest, nd *node) { nd.capacity = nd.published - 1 }, "published"},
		"a tree":              {func(f *forest, nd *node) { nd.tree = 1 }, "is not there"},
		"a tree that is gone": {func(f *forest, nd *node) { f.nodes.Drop(&f.tree) }, "is not there"},
		"a block twice":       {func(f *forest, nd *node) { f.nodes.at(2).all()[0] = nd.key(10) }, "is also at 10 of"},
		"no key":              {func(_ *forest, nd *node) { nd.all()[5] = 0 }, "key 0"},
		"no hash":             {func(f *forest, nd *node) { f.held[0].Take(nd.hash(3)) }, "64 hashes counted"},
		"a hash elsewhere":    {func(f *forest, nd *node) { f.held[0].Take(nd.hash(3)); f.held[0].own.Put(77, uint64(At(1, 3))) }, "leads to"},
		"a hash behind":       {func(f *forest, nd *node) { f.held[1].own.Reserve(1); f.held[1].own.Put(nd.hash(20), uint64(At(1, 20))) }, "of which it has 20"},
		"two hashes":          {func(f *forest, nd *node) { f.held[1].foreign.Put(77, uint64(At(1, 3))) }, "two hashes"},
		"a hash as another's": {func(f *forest, nd *node) {
			f.held[1].Take(nd.hash(3))
			f.held[1].foreign.Put(nd.hash(3), uint64(At(1, 3)))
		}, "kept as foreign"},
		"branches":           {func(f *forest, _ *node) { f.held[0].branches.Add(uint64(f.nodes.at(2).parent), 1) }, "places counted"},
		"branches elsewhere": {func(f *forest, _ *node) { f.held[1].branches.Add(uint64(f.nodes.at(2).parent), 1) }, "places counted"},
		"a block behind a gap": {func(f *forest, nd *node) {
			f.leave(1, 1, 9)
			f.nodes.toggle(2, f.nodes.at(2), 0, 1, 1)
		}, "not offset 9"},
	} {
		f := newForest(t, 64, 2)
		keys, branch := chain(0, 64), chain(1000, 1)
		first := f.begin(0, 0, keys)
		f.begin(0, first+9, branch)
		f.add(1, first, keys[:20])
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
		c.damage(f, f.nodes.at(1))
		if err := f.check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// Check finds nothing wrong with the longest node, nor with a slot whose blocks end where another
// node follows.
func TestCheckFindsNothing(t *testing.T) {
	f := newForest(t, 64, 2)
	keys := chain(0, MaxNode)
	p := f.begin(0, 0, keys)
	next := f.begin(0, p+MaxNode-1, chain(MaxNode, 3))
	f.begin(0, p+9, chain(2*MaxNode, 1))
	f.add(1, p, keys)
	f.add(1, next, chain(MaxNode, 1))
	if err := f.check(); err != nil {
		t.Error(err)
	}
}
