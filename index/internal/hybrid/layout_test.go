package hybrid

import "testing"

func TestKinds(t *testing.T) {
	for spec, want := range map[string]Kind{"full_attention": Full, "mla_attention": Full, "sink_full_attention": Full, "sliding_window": Window,
		"sliding_window_mla": Window, "chunked_local_attention": Chunked, "mamba": Mamba, "mamba2": Unknown, "": Unknown} {
		if got := KindOf(spec); got != want {
			t.Errorf("%q is %v, want %v", spec, got, want)
		}
	}
	for kind, want := range map[Kind]string{Unknown: "unknown", Mamba: "Mamba state"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is called %q", kind, got)
		}
	}
}

var (
	fullOf16   = Group{Spec: "full_attention", Kind: Full, Block: 16}
	fullOf64   = Group{Spec: "full_attention", Kind: Full, Block: 64}
	windowOf16 = Group{Index: 1, Spec: "sliding_window", Kind: Window, Block: 16, Window: 64}
	windowOf64 = Group{Index: 1, Spec: "sliding_window", Kind: Window, Block: 64, Window: 64}
	mambaOf16  = Group{Index: 2, Spec: "mamba", Kind: Mamba, Block: 16}
	mambaOf64  = Group{Index: 2, Spec: "mamba", Kind: Mamba, Block: 64}
)

// at is a group under another number.
func (g Group) at(index int) Group { g.Index = index; return g }

// TestLayouts: the properties that follow from groups, by the words of Layout's fields.
func TestLayouts(t *testing.T) {
	other := fullOf16.at(3)
	other.Spec = "mla_attention"
	windowless := windowOf16
	windowless.Window = 0
	for name, c := range map[string]struct {
		rule                      Rule
		groups                    []Group
		unit                      int
		align, measure, step      int
		known, partial, plain, by bool
		full                      int
	}{
		"one group":                        {Rule032, []Group{fullOf16}, 8, 16, 16, 16, true, false, true, true, 0},
		"one group of windows":             {Rule032, []Group{windowOf16}, 0, 16, 16, 16, true, false, false, false, -1},
		"two groups alike, a finer unit":   {Rule032, []Group{fullOf16, fullOf16.at(1)}, 8, 16, 8, 16, true, false, false, true, -1},
		"a unit that does not divide":      {Rule032, []Group{fullOf16, fullOf16.at(1)}, 5, 16, 16, 16, true, false, false, true, -1},
		"windows of shorter blocks":        {Rule032, []Group{fullOf64, windowOf16}, 0, 64, 16, 64, true, false, false, false, 0},
		"windows of longer blocks":         {Rule032, []Group{windowOf64, fullOf16}, 0, 64, 16, 64, true, false, false, true, 0},
		"a window that is not told":        {Rule032, []Group{fullOf16, windowless}, 0, 16, 16, 16, false, false, false, false, 0},
		"an unknown kind":                  {Rule032, []Group{fullOf16, {Index: 1, Block: 16}}, 0, 16, 16, 16, false, false, false, false, 0},
		"an unknown rule":                  {RuleUnknown, []Group{fullOf16, windowOf16}, 0, 16, 16, 16, false, false, false, false, 0},
		"two kinds of full attention":      {Rule032, []Group{fullOf16, other}, 0, 16, 16, 16, true, false, false, false, -1},
		"states inside blocks":             {Rule032, []Group{fullOf64, mambaOf64}, 16, 64, 16, 16, true, true, false, false, 0},
		"states at the ends of blocks":     {Rule032, []Group{fullOf16, mambaOf16}, 16, 16, 16, 16, true, false, false, true, 0},
		"states inside, windows of a unit": {Rule032, []Group{fullOf64, windowOf16, mambaOf64}, 16, 64, 16, 16, true, true, false, false, 0},
		"states inside, longer windows":    {Rule032, []Group{fullOf64, windowOf64, mambaOf64}, 16, 64, 16, 64, true, false, false, true, 0},
	} {
		g := NewLayout(c.rule, c.groups, c.unit)
		if g.Align != c.align || g.Unit != c.measure || g.Step != c.step || g.Known != c.known || g.Partial != c.partial ||
			g.Plain() != c.plain || g.ByTokens() != c.by || g.FullSpec() != c.full {
			t.Errorf("%s: align %d, unit %d, step %d, known %v, partial %v, plain %v, by tokens %v, full attention at %d; want %+v",
				name, g.Align, g.Unit, g.Step, g.Known, g.Partial, g.Plain(), g.ByTokens(), g.FullSpec(), c)
		}
	}
}

// TestGroupsAreLookedUpTogether: only groups that are alike in everything, and no groups
// of an unknown kind. Other groups are passed over.
func TestGroupsAreLookedUpTogether(t *testing.T) {
	chunked := Group{Index: 20, Spec: "chunked_local_attention", Kind: Chunked, Block: 16, Chunk: 64}
	apart := []Group{windowOf16.at(9), windowOf64.at(10), fullOf16.at(11), chunked, {Index: 21, Block: 16}, {Index: 22, Block: 16}}
	wider, longer, renamed := windowOf16.at(12), chunked.at(23), windowOf16.at(13)
	wider.Window, longer.Chunk, renamed.Spec = 65, 128, "sliding_window_mla"
	mamba := windowOf16.at(14) // the kind alone differs
	mamba.Kind = Mamba
	apart = append(apart, wider, longer, renamed, mamba)
	g := NewLayout(Rule032, append(apart, windowOf16.at(31), windowOf16.at(0), windowOf16.at(32), windowOf16.at(-1), Group{Index: 5, Kind: Full}), 0)
	if len(g.Specs) != len(apart) {
		t.Fatalf("%d specs, want %d", len(g.Specs), len(apart))
	}
	if s := g.Specs[0]; s.Kind != Full || s.Mask != 1<<11 {
		t.Errorf("first %+v, want full attention", s)
	}
	if s := g.Specs[1]; s.Index != 0 || s.Mask != 1|1<<9|1<<31 || len(s.Groups) != 3 {
		t.Errorf("then %+v, want the windows of 64", s)
	}
	for i := 2; i < len(g.Specs); i++ {
		if g.Specs[i].Index <= g.Specs[i-1].Index {
			t.Errorf("spec %d is of group %d, behind %d", i, g.Specs[i].Index, g.Specs[i-1].Index)
		}
	}
	if got := g.Drops(1<<31 | 1<<11); got != 3 {
		t.Errorf("specs %b drop a block, want the first two", got)
	}
	if NewLayout(Rule032, []Group{{Kind: Full}}, 0) != nil {
		t.Error("a layout of no block")
	}
}

// TestSame: layouts are one when nothing differs.
func TestSame(t *testing.T) {
	layout := func(rule Rule, unit int, groups ...Group) *Layout { return NewLayout(rule, groups, unit) }
	base := layout(Rule032, 16, fullOf64, mambaOf64)
	if !base.Same(layout(Rule032, 16, mambaOf64, fullOf64)) {
		t.Error("the same groups are not the same")
	}
	differently := map[string]*Layout{
		"another rule": layout(Rule027, 16, fullOf64, mambaOf64), "another unit": layout(Rule032, 32, fullOf64, mambaOf64),
		"another group": layout(Rule032, 16, fullOf64, mambaOf64.at(3)), "one more": layout(Rule032, 16, fullOf64, mambaOf64, mambaOf64.at(3)),
	}
	for _, change := range []func(*Layout){func(g *Layout) { g.Known = false }, func(g *Layout) { g.Partial = false }} {
		g := layout(Rule032, 16, fullOf64, mambaOf64)
		change(g)
		if base.Same(g) || g.Same(base) {
			t.Errorf("%+v is %+v", g, base)
		}
	}
	for name, g := range differently {
		if base.Same(g) || g.Same(base) {
			t.Errorf("%s is the same", name)
		}
	}
}
