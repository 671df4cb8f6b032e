package index

import (
	"testing"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
	"warmroute/prefixhash"
)

// check finds each kind of damage that is done to a sound index.
func TestCheckFindsDamage(t *testing.T) {
	damages := map[string]func(sh *shard, ks *keyspace){
		"a reference":  func(sh *shard, _ *keyspace) { sh.sets.Retain(holderset.FirstInterned+1, 1) },
		"a name":       func(sh *shard, _ *keyspace) { sh.info[0].gpu.Take(anyName(sh)) },
		"blocks":       func(sh *shard, _ *keyspace) { sh.info[0].blocks[TierGPU]++ },
		"blocks below": func(sh *shard, _ *keyspace) { sh.info[0].blocks[TierCPU]++ },
		"a copy":       func(sh *shard, _ *keyspace) { sh.copies[copyKey{0, 0, TierCPU, 77}] = 1 },
		"all blocks":   func(sh *shard, _ *keyspace) { sh.x.blocks.Add(1) },
	}
	for name, damage := range damages {
		x := newFixture(t, Options{checkpointEvery: 64})
		x.f.parent = append(x.f.parent, 9)
		x.f.content = append(x.f.content, 999)
		x.f.key = append(x.f.key, prefixhash.Link(x.f.key[9], 999))
		x.send(a, x.Begin(a), x.f.stored(a, TierGPU, x.all()[:64]), x.f.stored(a, TierGPU, []int{64}), x.f.stored(a, TierCPU, x.all()[:3]))
		x.send(b, x.Begin(b), x.f.stored(b, TierGPU, x.all()[:30]), x.f.removed(b, TierGPU, 20))
		if err := x.check(); err != nil {
			t.Fatal(err)
		}
		sh := x.allShards()[0]
		damage(sh, sh.keyspaces[0])
		if err := x.check(); err == nil {
			t.Errorf("%s: the damage is not found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// anyName returns the first holder's name of one of its blocks.
func anyName(sh *shard) (any uint64) {
	sh.info[0].gpu.Each(func(name uint64, _ radix.Place) { any = name })
	return any
}
