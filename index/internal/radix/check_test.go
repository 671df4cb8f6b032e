package radix

import "testing"

// What Check is to find is found: each damage is done to sound nodes.
func TestCheckFindsDamage(t *testing.T) {
	damages := map[string]func(f *forest, nd *node){
		"a block less":     func(_ *forest, nd *node) { nd.state.Store(nd.state.Load() - 1) },
		"blocks":           func(f *forest, _ *node) { f.tree.blocks++ },
		"a head":           func(f *forest, nd *node) { f.tree.heads.Delete(nd.key(0), uint64(At(1, 0))) },
		"a checkpoint":     func(f *forest, nd *node) { f.tree.checkpoints.Delete(nd.key(63), uint64(At(1, 63))) },
		"a reference":      func(f *forest, nd *node) { f.sets.Retain(unpackRun(nd.runWords()[0]).Set, 1) },
		"runs that grow":   func(_ *forest, nd *node) { nd.runWords()[0] = packRun(Run{unpackRun(nd.runWords()[0]).End, 1}) },
		"runs do not rise": func(_ *forest, nd *node) { nd.runWords()[0] = packRun(Run{0, unpackRun(nd.runWords()[0]).Set}) },
		"depth":            func(f *forest, _ *node) { f.nodes.at(2).depth++ },
		"parent":           func(f *forest, _ *node) { f.nodes.at(2).parent-- },
		"a child":          func(_ *forest, nd *node) { nd.child = 0 },
		"deepest":          func(_ *forest, nd *node) { nd.deepest = -1 },
		"published":        func(_ *forest, nd *node) { nd.published = 3 },
		"a hash":           func(f *forest, nd *node) { f.held[0].Take(nd.hash(3)) },
		"a hash's place":   func(f *forest, nd *node) { nd.plain, nd.capacity = false, 0; nd.hashes(4)[3]++ },
		"branches":         func(f *forest, _ *node) { f.held[0].branches.Add(uint64(f.nodes.at(2).parent), 1) },
	}
	for name, damage := range damages {
		f := newForest(t, 64)
		keys, branch := chain(0, 64), chain(1000, 1)
		first := f.begin(0, 0, keys)
		f.begin(0, first+9, branch)
		f.add(1, first, keys[:20])
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
		damage(f, f.nodes.at(1))
		if err := f.check(); err == nil {
			t.Errorf("%s: the damage is not found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
