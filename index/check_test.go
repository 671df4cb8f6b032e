package index

import (
	"testing"

	"warmroute/prefixhash"
)

// What check is to find is found: each damage is done to a sound index.
func TestCheckFindsDamage(t *testing.T) {
	damages := map[string]func(d *domain, sp *space, st *stem){
		"a block less": func(d *domain, _ *space, st *stem) { st.state.Store(st.state.Load() - 1) },
		"held":         func(_ *domain, sp *space, _ *stem) { sp.held++ },
		"a head":       func(_ *domain, sp *space, st *stem) { sp.heads.Delete(st.key(0), uint64(posAt(1, 0))) },
		"a mark":       func(_ *domain, sp *space, st *stem) { sp.marks.Delete(st.key(63), uint64(posAt(1, 63))) },
		"a reference":  func(d *domain, _ *space, st *stem) { d.sets.Retain(unpackLevel(st.words()[0]).set, 1) },
		"levels that grow": func(_ *domain, _ *space, st *stem) {
			w := st.words()
			w[0] = packLevel(level{unpackLevel(w[0]).end, 1})
		},
		"levels that do not rise": func(_ *domain, _ *space, st *stem) {
			w := st.words()
			w[0] = packLevel(level{0, unpackLevel(w[0]).set})
		},
		"depth":                    func(d *domain, _ *space, _ *stem) { d.stems.at(2).depth++ },
		"parent":                   func(d *domain, _ *space, _ *stem) { d.stems.at(2).parent-- },
		"a child that is not told": func(_ *domain, _ *space, st *stem) { st.child = 0 },
		"deep":                     func(_ *domain, _ *space, st *stem) { st.deep = -1 },
		"seen":                     func(_ *domain, _ *space, st *stem) { st.seen = 3 },
		"a name":                   func(d *domain, _ *space, st *stem) { d.info[0].take(&d.stems, st.name(3)) },
		"a name's place":           func(_ *domain, _ *space, st *stem) { st.names(4)[3]++ },
		"blocks":                   func(d *domain, _ *space, _ *stem) { d.info[0].blocks[TierGPU]++ },
		"blocks below":             func(d *domain, _ *space, _ *stem) { d.info[0].blocks[TierCPU]++ },
		"kids": func(d *domain, _ *space, _ *stem) {
			d.info[0].kids.Add(uint64(d.stems.at(2).parent), 1)
		},
		"a stranded block": func(d *domain, _ *space, _ *stem) { clear(d.info[1].stranded) },
		"what waits":       func(d *domain, _ *space, _ *stem) { clear(d.info[1].behind) },
		"the stranded table": func(_ *domain, sp *space, _ *stem) {
			for s := range sp.stranded.Load().All() {
				sp.stranded.Load().Set(s, 1)
			}
		},
		"a copy":     func(d *domain, _ *space, _ *stem) { d.copies[copyKey{0, 0, TierCPU, 77}] = 1 },
		"all blocks": func(d *domain, _ *space, _ *stem) { d.x.blocks.Add(1) },
	}
	for name, damage := range damages {
		x := newFixture(t, Options{markEvery: 64})
		x.f.parent = append(x.f.parent, 9)
		x.f.content = append(x.f.content, 999)
		x.f.key = append(x.f.key, prefixhash.Link(x.f.key[9], 999))
		x.send(a, x.Begin(a), x.f.stored(a, TierGPU, x.all()[:64]), x.f.stored(a, TierGPU, []int{64}), x.f.stored(a, TierCPU, x.all()[:3]))
		x.send(b, x.Begin(b), x.f.stored(b, TierGPU, x.all()[:30]), x.f.removed(b, TierGPU, 20))
		if err := x.check(); err != nil {
			t.Fatal(err)
		}
		d := x.allDomains()[0]
		damage(d, d.spaces[0], d.stems.at(1))
		if err := x.check(); err == nil {
			t.Errorf("%s: the damage is not found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
