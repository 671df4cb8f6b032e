package hybrid

import (
	"math/rand/v2"
	"testing"
)

// oracle evaluates vLLM's rule as the releases' code reads, spec by spec, over blocks that a
// map holds.
type oracle struct {
	g     *Layout
	h     *blocks
	n     int
	drops uint32
}

func (o *oracle) hit() int {
	g := o.g
	if g.one() {
		return o.best(0, o.n-1, o.drops != 0)
	}
	hit := o.n - 1
	verified, found := map[int]bool{}, map[int]int{}
	for {
		cur := hit
		for i := range g.Specs {
			s := &g.Specs[i]
			if before, ok := found[i]; ok && s.Kind == Full {
				cur = min(cur, before)
				continue
			}
			drop := o.drops>>i&1 != 0 && !verified[i]
			limit, was := cur, cur
			if drop && s.Kind != Mamba {
				limit += s.Block
				if g.Partial && s.Kind == Full && s.Block > g.Unit {
					limit = cur + g.Unit
				}
				if g.Rule == Rule032 {
					limit = min(limit, o.n/g.Unit*g.Unit)
				} else {
					limit = min(limit, o.n-1)
				}
			}
			cur = o.best(i, limit, drop)
			if drop {
				verified[i] = true
			} else if cur < was {
				clear(verified)
			}
			found[i] = cur
		}
		if cur >= hit {
			return hit
		}
		if hit = cur; g.full == 1 && len(g.Specs) == 2 {
			return hit
		}
	}
}

// best is the last place of one spec, at most limit.
func (o *oracle) best(i, limit int, drop bool) int {
	s, step := &o.g.Specs[i], o.g.Step
	down := func(n int) int { return n - n%step }
	switch s.Kind {
	case Full:
		end := 0
		for end+s.Block <= limit && o.h.Held(i, end+s.Block) {
			end += s.Block
		}
		if step < s.Block {
			for at := down(min(limit, end+s.Block-1)); at > end; at -= step {
				if o.h.Held(i, at) {
					end = at
				}
			}
		}
		if drop && end > 0 {
			end -= min(step, s.Block)
		}
		return down(end)
	case Mamba:
		each := step
		if step < s.Block {
			each = o.g.Unit
		}
		for at := limit / each * each; at > 0; at -= each {
			if o.h.Held(i, at) {
				return at
			}
		}
		return 0
	case Chunked:
		at := 0
		if s.Chunk > 0 {
			at = limit / s.Chunk * s.Chunk / s.Block * s.Block
		}
		for at+s.Block <= limit && o.h.Held(i, at+s.Block) {
			at += s.Block
		}
		if drop && at > 0 {
			at -= s.Block
		}
		return down(at)
	}
	need, dropped := s.WindowBlocks(), 0
	if drop {
		need, dropped = need+1, s.Block
	}
	for end := limit / s.Block * s.Block; end > 0; end -= s.Block {
		if s.Block != step && (end-dropped)%step != 0 {
			continue
		}
		run := 0
		for at := end; at > 0 && run < need && o.h.Held(i, at); at -= s.Block {
			run++
		}
		switch {
		case run == need && need > 0:
			return max(0, down(end-dropped))
		case run*s.Block == end && down(end) > 0:
			return max(0, down(down(end)-dropped))
		case run*s.Block == end:
			return 0
		}
	}
	return 0
}

// TestHitFollowsTheOracle: with and without draft models, in all generations, for layouts of
// the kinds that models have.
func TestHitFollowsTheOracle(t *testing.T) {
	chunk := Group{Index: 1, Kind: Chunked, Spec: "chunked_local_attention", Block: 16, Chunk: 64}
	wide := windowOf16.at(2)
	wide.Window = 110
	layouts := []struct {
		groups []Group
		unit   int
	}{
		{[]Group{fullOf16}, 0}, {[]Group{windowOf16}, 0}, {[]Group{chunk}, 0}, {[]Group{mambaOf16}, 0},
		{[]Group{fullOf16, windowOf16}, 0}, {[]Group{fullOf16, windowOf64}, 0}, {[]Group{fullOf64, windowOf16}, 0}, {[]Group{fullOf16, windowOf16, wide}, 0},
		{[]Group{fullOf16, chunk}, 0}, {[]Group{fullOf16, mambaOf16, windowOf16}, 0}, {[]Group{fullOf64, mambaOf64}, 0},
		{[]Group{fullOf64, mambaOf64}, 16}, {[]Group{fullOf16, mambaOf64}, 16}, {[]Group{fullOf64, mambaOf64, windowOf16}, 16}, {[]Group{windowOf16, mambaOf16}, 0},
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i, c := range layouts {
		hits := 0
		for round := range 6000 {
			rule := []Rule{Rule027, Rule032}[round/2%2]
			o := oracle{g: NewLayout(rule, c.groups, c.unit), n: 2 + rnd.IntN(420)}
			o.h = &blocks{g: o.g}
			if round%2 > 0 {
				o.drops = rnd.Uint32() & (1<<len(o.g.Specs) - 1)
			}
			for s := range o.g.Specs {
				ends, gaps := map[int]bool{}, 3+rnd.IntN(30)
				for end := o.g.Unit; end <= o.n; end += o.g.Unit {
					if o.g.Partial || end%o.g.Specs[s].Block == 0 {
						ends[end] = rnd.IntN(gaps) > 0
					}
				}
				o.h.ends = append(o.h.ends, ends)
			}
			groups := uint32(0)
			for s := range o.g.Specs {
				if o.drops>>s&1 != 0 {
					groups |= o.g.Specs[s].Mask
				}
			}
			want := o.hit()
			if got := o.g.Hit(o.n, Assumed{Eagle: groups}, o.h); got != want {
				t.Fatalf("layout %d, %d tokens, rule %d, specs %b drop: hits %d, want %d", i, o.n, rule, o.drops, got, want)
			}
			if want > 0 {
				hits++
			}
		}
		if hits < 1000 {
			t.Errorf("layout %d: only %d hits", i, hits)
		}
	}
}
