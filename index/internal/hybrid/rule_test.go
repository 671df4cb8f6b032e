package hybrid

import (
	"math/rand/v2"
	"testing"
)

// blocks is a cache of blocks by spec and end.
type blocks struct {
	g    *Layout
	ends []map[int]bool
}

func (h *blocks) Held(spec, end int) bool { return h.ends[spec][end] }

// Run returns runs of all lengths.
func (h *blocks) Run(spec, end int) (held bool, from int) {
	held, from = h.ends[spec][end], end-h.g.Unit
	for from > 0 && h.ends[spec][from] == held && from%7 != 0 {
		from -= h.g.Unit
	}
	return held, from
}

func (h *blocks) Depth(spec, limit int) int {
	for k := range limit {
		if !h.ends[spec][(k+1)*h.g.Specs[spec].Block] {
			return k
		}
	}
	return limit
}

// satisfied reports whether a hit may end there for one spec, by the blocks that its
// layers read.
func (h *blocks) satisfied(spec, end int) bool {
	s := &h.g.Specs[spec]
	from := 0
	switch s.Kind {
	case Window:
		from = max(0, end-(s.Window-1))
	case Chunked:
		from = end / s.Chunk * s.Chunk
	case Mamba:
		from = end - s.Block
	}
	for at := end; at > from; at -= s.Block {
		if !h.ends[spec][at] {
			return false
		}
	}
	return true
}

// TestHitIsTheLastEndThatAllAllow: where no group drops a block, the fixed point is the
// longest aligned end short of the prompt's for which every group has the blocks that its
// layers read.
func TestHitIsTheLastEndThatAllAllow(t *testing.T) {
	layouts := [][]Group{
		{{Spec: "full_attention", Kind: Full, Block: 16}, {Index: 1, Kind: Window, Block: 16, Window: 64}},
		{{Spec: "full_attention", Kind: Full, Block: 16}, {Index: 1, Kind: Window, Block: 32, Window: 70}, {Index: 2, Kind: Window, Block: 16, Window: 33}},
		{{Kind: Mamba, Block: 16}, {Index: 1, Kind: Full, Block: 16}, {Index: 2, Kind: Chunked, Block: 16, Chunk: 64}},
		{{Kind: Full, Block: 64}, {Index: 1, Kind: Mamba, Block: 64}, {Index: 2, Kind: Mamba, Block: 64}},
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, rule := range []Rule{Rule027, Rule032} {
		for i, groups := range layouts {
			g := NewLayout(rule, groups, 0)
			hits := 0
			for range 2000 {
				n := 1 + rnd.IntN(400)
				h := &blocks{g: g}
				for s := range g.Specs {
					ends := map[int]bool{}
					for end := g.Specs[s].Block; end <= n; end += g.Specs[s].Block {
						ends[end] = rnd.IntN(12) > 0
					}
					h.ends = append(h.ends, ends)
				}
				want := 0
				for end := g.Step; end < n; end += g.Step {
					all := true
					for s := range g.Specs {
						all = all && h.satisfied(s, end)
					}
					if all {
						want = end
					}
				}
				if got := g.Hit(n, Assumed{}, h); got != want {
					t.Fatalf("rule %d, layout %d, %d tokens: hits %d, want %d", rule, i, n, got, want)
				}
				if want > 0 {
					hits++
				}
			}
			if hits < 500 {
				t.Errorf("rule %d, layout %d: only %d hits", rule, i, hits)
			}
		}
	}
}

// TestDropsABlock: with a draft model a full-attention cache hits a block less, a
// replayed window nothing up to its length.
func TestDropsABlock(t *testing.T) {
	g := NewLayout(Rule032, []Group{{Spec: "full_attention", Kind: Full, Block: 16}}, 0)
	h := &blocks{g: g, ends: []map[int]bool{{16: true, 32: true, 48: true}}}
	for _, c := range []struct {
		n    int
		a    Assumed
		want int
	}{
		{100, Assumed{}, 48}, {48, Assumed{}, 32}, {1, Assumed{}, 0}, {100, Assumed{Eagle: 1}, 32}, {17, Assumed{Eagle: 1}, 0},
		{100, Assumed{Replay: 47}, 48}, {100, Assumed{Replay: 48}, 0},
	} {
		if got := g.Hit(c.n, c.a, h); got != c.want {
			t.Errorf("%d tokens, %v: hits %d, want %d", c.n, c.a, got, c.want)
		}
	}
}

// TestAlone: one group by itself would have these tokens of a prompt; a group of an
// unknown kind would have the blocks it holds from the start.
func TestAlone(t *testing.T) {
	g := NewLayout(Rule032, []Group{{Spec: "full_attention", Kind: Full, Block: 16}, {Index: 1, Block: 16}}, 0)
	h := &blocks{g: g, ends: []map[int]bool{{16: true, 32: true, 48: true}, {16: true, 32: true, 64: true}}}
	for _, c := range []struct {
		spec, n int
		eagle   uint32
		want    int
	}{
		{0, 100, 0, 48}, {0, 49, 0, 48}, {0, 48, 0, 32}, {0, 100, 1, 32}, {0, 100, 2, 48},
		{1, 100, 0, 32}, {1, 33, 0, 32}, {1, 32, 0, 16}, {1, 100, 2, 32},
	} {
		if got := g.Alone(c.spec, c.n, Assumed{Eagle: c.eagle}, h); got != c.want {
			t.Errorf("spec %d, %d tokens, groups %b drop a block: %d, want %d", c.spec, c.n, c.eagle, got, c.want)
		}
	}
}

func TestAssumptionsInWords(t *testing.T) {
	for want, a := range map[string]Assumed{
		"no group drops a block":                                 {},
		"groups 0 3 drop a block":                                {Eagle: 1 | 1<<3},
		"no group drops a block, hits of up to 1 computed again": {Replay: 1},
	} {
		if got := a.String(); got != want || a.None() != (a == Assumed{}) {
			t.Errorf("%q (none: %v), want %q", got, a.None(), want)
		}
	}
}
