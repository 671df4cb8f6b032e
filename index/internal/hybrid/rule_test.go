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

// TestGuessesSwitchOnEvidence: several reports choose the assumption, a single report
// does not.
func TestGuessesSwitchOnEvidence(t *testing.T) {
	g := NewLayout(Rule032, []Group{{Spec: "full_attention", Kind: Full, Block: 16}}, 0)
	s := NewGuesses(g, Settings{})
	all := s.List(nil)
	predicted := make([]int32, len(all))
	for i, a := range all {
		predicted[i] = 48
		if a.Eagle != 0 {
			predicted[i] = 32
		}
	}
	if s.Learn(predicted, 32) || s.Assumed().Eagle != 0 || s.Believed() {
		t.Fatal("one report is no evidence")
	}
	switched := 0
	for range 5 {
		if s.Learn(predicted, 32) {
			switched++
			predicted[0], predicted[1] = 32, 48 // the assumption in use comes first
			for i, a := range s.List(nil) {
				predicted[i] = 48
				if a.Eagle != 0 {
					predicted[i] = 32
				}
			}
		}
	}
	if switched != 1 || s.Assumed().Eagle == 0 || !s.Believed() {
		t.Errorf("switched %d times to %v, believed %v", switched, s.Assumed(), s.Believed())
	}
}

// TestGuessesAreSpread: which assumptions compete, by layout and settings.
func TestGuessesAreSpread(t *testing.T) {
	chunked := Group{Index: 1, Kind: Chunked, Spec: "chunked_local_attention", Block: 16}
	mla := Group{Spec: "mla_attention", Kind: Full, Block: 16}
	for name, c := range map[string]struct {
		settings Settings
		groups   []Group
		drops    int // sets of groups that drop a block
		chunks   []int
		replays  int
	}{
		"one group":             {Settings{}, []Group{fullOf16}, 2, nil, 0},
		"two groups":            {Settings{}, []Group{fullOf16, windowOf16}, 4, nil, 0},
		"drops are given":       {Settings{EagleKnown: true, Eagle: 1}, []Group{fullOf16, windowOf16}, 1, nil, 0},
		"the chunk is open":     {Settings{EagleKnown: true}, []Group{fullOf16, chunked}, 1, []int{0, 16, 32, 48, 64, 96, 131072}, 0},
		"the chunk is given":    {Settings{EagleKnown: true, Chunk: 64}, []Group{fullOf16, chunked}, 1, nil, 0},
		"a number is left out":  {Settings{EagleKnown: true}, []Group{fullOf16, windowOf16.at(2)}, 1, nil, 22},
		"the kind that replays": {Settings{EagleKnown: true}, []Group{mla}, 1, nil, 22},
		"it is given":           {Settings{EagleKnown: true, Replay: 64}, []Group{mla}, 1, nil, 1},
		"it is given that none": {Settings{EagleKnown: true, ReplayKnown: true}, []Group{mla}, 1, nil, 0},
		"kinds are not known":   {Settings{}, []Group{fullOf16, {Index: 1, Block: 16}}, 1, nil, 0},
	} {
		drops, chunks, replays := map[uint32]bool{}, map[int]bool{}, map[int]bool{}
		s := NewGuesses(NewLayout(Rule032, c.groups, 0), c.settings)
		for _, a := range s.List(nil) {
			drops[a.Eagle], chunks[a.Chunk], replays[a.Replay] = true, true, true
		}
		delete(replays, 0)
		if len(drops) != c.drops || len(replays) != c.replays {
			t.Errorf("%s: %d sets drop, %d windows are replayed", name, len(drops), len(replays))
		}
		for _, want := range c.chunks {
			if !chunks[want] {
				t.Errorf("%s: no chunk of %d", name, want)
			}
		}
		if len(c.chunks) > 0 && (chunks[8] || chunks[24] || chunks[1<<18] || len(chunks) != 28) {
			t.Errorf("%s: chunks %v", name, chunks)
		}
		if c.replays == 22 && !(replays[16] && replays[256] && replays[512] && replays[16384]) {
			t.Errorf("%s: replays %v", name, replays)
		}
		least := s.Least()
		if worst := ^uint32(0); !c.settings.EagleKnown && least.Eagle != worst || c.replays == 22 && least.Replay < 1<<20 || c.replays < 22 && least.Replay != c.settings.Replay {
			t.Errorf("%s: least %v", name, least)
		}
	}
}

// TestBelieve: the number of reports that confirm an assumption depends on the
// assumptions that they distinguish.
func TestBelieve(t *testing.T) {
	layout := NewLayout(Rule032, []Group{fullOf16}, 0)
	differ, same, none := []int32{48, 32}, []int32{48, 48}, []int32{0, 0}
	for name, c := range map[string]struct {
		inferred bool
		reports  []int32 // predictions, repeated
		reported int
		after    int // so many times; never: 0
	}{
		"they differ":                      {false, differ, 48, 3},
		"they differ, the kind is a guess": {true, differ, 48, 40},
		"they never differ":                {false, same, 48, 64},
		"never, and the kind is a guess":   {true, same, 48, 0},
		"there is no hit":                  {false, none, 0, 0},
		"all are wrong":                    {false, differ, 16, 0},
	} {
		s := NewGuesses(layout, Settings{})
		s.Infer(c.inferred)
		got := 0
		for i := 1; i <= 100 && got == 0; i++ {
			s.Learn(c.reports, c.reported)
			if s.Believed() {
				got = i
			}
		}
		equal(t, name, got, c.after)
	}
	s := NewGuesses(layout, Settings{})
	for range 57 {
		s.Learn(differ, 48)
	}
	for i := range 4 { // 95 of 100 of the last 64 must be right
		s.Learn(differ, 7)
		equal(t, "after a wrong one", s.Believed(), i < 3)
	}
	equal(t, "of another layout", s.Learn([]int32{1}, 1), false)
	n, of, right := s.Seen()
	if n != 61 || of != 61 || right != 57 {
		t.Errorf("%d seen, %d of %d right", n, right, of)
	}
}

// TestBelieveAgainstEveryGuess: reports that rule out one guess do not confirm the guess in use
// against another one that predicted the same.
func TestBelieveAgainstEveryGuess(t *testing.T) {
	layout := NewLayout(Rule032, []Group{fullOf16, windowOf16.at(1)}, 0)
	s := NewGuesses(layout, Settings{})
	if len(s.List(nil)) != 4 {
		t.Fatalf("guesses %v", s.List(nil))
	}
	for range 30 {
		s.Learn([]int32{48, 32, 48, 32}, 48)
	}
	equal(t, "one guess is not ruled out", s.Believed(), false)
	for i := range 3 {
		s.Learn([]int32{48, 48, 32, 48}, 48)
		equal(t, "the last one", s.Believed(), i == 2)
	}
	s.Fit(NewLayout(Rule032, []Group{{Index: 0, Block: 16}, {Index: 1, Block: 16}}, 0))
	equal(t, "no other guess is left", s.Believed(), false)
}

// TestReplayIsPredicted: a hit of at most the replayed window counts as none.
func TestReplayIsPredicted(t *testing.T) {
	g := NewLayout(Rule032, []Group{fullOf16}, 0)
	h := &blocks{g: g, ends: []map[int]bool{{16: true, 32: true, 48: true}}}
	got := Predict(nil, g, []Assumed{{}, {Replay: 47}, {Replay: 48}, {Eagle: 1}, {Eagle: 1, Replay: 32}}, 100, h)
	equalAll(t, "predictions", got, []int32{48, 48, 0, 32, 0})
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
		"no group drops a block, chunks of 1":                    {Chunk: 1},
		"no group drops a block, hits of up to 1 computed again": {Replay: 1},
	} {
		if got := a.String(); got != want || a.None() != (a == Assumed{}) {
			t.Errorf("%q (none: %v), want %q", got, a.None(), want)
		}
	}
}
