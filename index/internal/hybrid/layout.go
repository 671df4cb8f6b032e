package hybrid

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is the part of a prompt's past that a group's layers read.
type Kind uint8

const (
	Unknown Kind = iota
	Full         // all of it
	Window       // the last Window tokens
	Chunked      // back to the last multiple of Chunk
	Mamba        // one state
)

var kindNames = [...]string{Unknown: "unknown", Full: "full attention", Window: "sliding window", Chunked: "chunked attention", Mamba: "Mamba state"}

func (k Kind) String() string { return kindNames[k] }

// KindOf returns the kind with a kv_cache_spec_kind of vLLM.
func KindOf(spec string) Kind {
	switch {
	case spec == "full_attention", spec == "mla_attention", spec == "sink_full_attention":
		return Full
	case strings.HasPrefix(spec, "sliding_window"):
		return Window
	case spec == "chunked_local_attention":
		return Chunked
	case spec == "mamba":
		return Mamba
	}
	return Unknown
}

// Group is one KV cache group.
type Group struct {
	Index  int
	Spec   string // vLLM's name of the kind; groups of different names are looked up apart
	Kind   Kind
	Block  int // tokens per block
	Window int // of Window
	Chunk  int // of Chunked; 0: unknown; blocks before the chunk are then required too
}

// WindowBlocks returns how many blocks before the next token the window reads.
func (g *Group) WindowBlocks() int { return ceil(g.Window-1, g.Block) }

// Rule is a generation of vLLM's lookup.
type Rule uint8

const (
	RuleUnknown Rule = iota
	Rule032          // as in vLLM 0.32
	Rule027          // as in vLLM 0.27: as 0.32, but a group that drops a block looks no further than the last token but one
	RuleSGLang       // SGLang's: a hit has the whole pages of the prompt without its last token, and drops none for a draft model
)

// MaxGroups bounds the groups of a cache.
const MaxGroups = 32

// Spec is the groups that are looked up together: a block counts when all of
// them hold it.
type Spec struct {
	Group         // the first of them
	Groups []int  // their indices
	Mask   uint32 // the same, as bits
}

// Layout is the groups of a cache, and the measures that follow from them.
type Layout struct {
	Rule    Rule
	Specs   []Spec // full attention first, else by the first group's index
	Align   int    // L: the least common multiple of all blocks
	Unit    int    // u: tokens per hash
	Step    int    // A: hits are multiples of it
	Partial bool   // Mamba states inside blocks are cached
	Known   bool   // the rule and every group's kind are known, so that Hit is vLLM's; otherwise nothing is hit

	full int // the number of full-attention specs, which are the first ones
}

// NewLayout returns the layout of a cache with these groups, or nil if none of them has a
// block size. unit is vLLM's prefix_match_unit, 0 when not set.
func NewLayout(rule Rule, groups []Group, unit int) *Layout {
	g := &Layout{Rule: rule, Known: rule != RuleUnknown}
	for _, one := range groups {
		if one.Block <= 0 || one.Index < 0 || one.Index >= MaxGroups {
			continue
		}
		g.add(one)
	}
	if len(g.Specs) == 0 {
		return nil
	}
	slices.SortStableFunc(g.Specs, func(a, b Spec) int {
		return cmp.Or(cmp.Compare(order(a.Kind), order(b.Kind)), cmp.Compare(a.Index, b.Index))
	})
	for i := range g.Specs {
		s := &g.Specs[i]
		if s.Kind == Full {
			g.full++
		}
		if s.Kind == Unknown || s.Kind == Window && s.Window <= 0 {
			g.Known = false
		}
	}
	g.measure(unit)
	return g
}

func order(k Kind) int {
	if k == Full {
		return 0
	}
	return 1
}

func (g *Layout) add(one Group) {
	for i := range g.Specs {
		s := &g.Specs[i]
		if s.Kind == one.Kind && s.Kind != Unknown && s.Spec == one.Spec && s.Block == one.Block && s.Window == one.Window && s.Chunk == one.Chunk {
			s.Groups = append(s.Groups, one.Index)
			s.Mask |= 1 << one.Index
			s.Index = min(s.Index, one.Index)
			return
		}
	}
	g.Specs = append(g.Specs, Spec{Group: one, Groups: []int{one.Index}, Mask: 1 << one.Index})
}

// maxAlign bounds the least common multiple of blocks. It exceeds every context.
const maxAlign = 1 << 30

func (g *Layout) measure(unit int) {
	g.Align, g.Unit = 1, 0
	fine := true // vLLM can probe every group inside blocks, or its blocks are one unit long
	inside := false
	for i := range g.Specs {
		b := g.Specs[i].Block
		g.Align = min(g.Align/gcd(g.Align, b)*b, maxAlign)
		g.Unit = gcd(g.Unit, b)
	}
	g.Step = g.Align
	if g.one() {
		return
	}
	if unit > 0 && g.Unit%unit == 0 {
		g.Unit = unit
	}
	for i := range g.Specs {
		s := &g.Specs[i]
		switch {
		case s.Kind == Mamba:
			inside = inside || s.Block > g.Unit
		case s.Kind == Full, s.Block == g.Unit:
		default:
			fine = false
		}
	}
	if g.Partial = inside && fine; g.Partial {
		g.Step = g.Unit
	}
}

// one reports whether the cache has a single group, for which vLLM has a rule of its own.
func (g *Layout) one() bool { return len(g.Specs) == 1 && len(g.Specs[0].Groups) == 1 }

// Plain reports whether the cache is one group of full attention: it hits the blocks that
// it holds from the start.
func (g *Layout) Plain() bool { return g.one() && g.Specs[0].Kind == Full }

// FullSpec returns the only full-attention spec, if it has one group; otherwise -1.
func (g *Layout) FullSpec() int {
	if g.full == 1 && len(g.Specs[0].Groups) == 1 {
		return 0
	}
	return -1
}

// ByTokens reports whether the blocks of full attention show where the blocks of all groups
// lie, because no group has finer ones. No hash of vLLM is needed then.
func (g *Layout) ByTokens() bool {
	if !g.Known || g.full != 1 || g.Partial {
		return false
	}
	return !slices.ContainsFunc(g.Specs, func(s Spec) bool { return s.Block%g.Specs[0].Block != 0 })
}

// lacksChunk reports whether the chunk of a spec is not configured.
func (g *Layout) lacksChunk() bool {
	return slices.ContainsFunc(g.Specs, func(s Spec) bool { return s.Kind == Chunked && s.Chunk == 0 })
}

// mayReplay reports whether the model may have groups that cache nothing: a group number is
// missing, or the attention is MLA, which has such groups.
func (g *Layout) mayReplay() bool {
	mask := uint32(0)
	mla := false
	for i := range g.Specs {
		mask |= g.Specs[i].Mask
		mla = mla || g.Specs[i].Spec == "mla_attention"
	}
	return mla || mask&(mask+1) != 0
}

// Drops returns the specs, as bits, that drop a block because some groups, as bits, have a
// draft model's layers.
func (g *Layout) Drops(groups uint32) (specs uint32) {
	for i := range g.Specs {
		if g.Specs[i].Mask&groups != 0 {
			specs |= 1 << i
		}
	}
	return specs
}

// Same reports whether two layouts are equal.
func (g *Layout) Same(o *Layout) bool {
	return g.Rule == o.Rule && g.Unit == o.Unit && g.Known == o.Known && g.Partial == o.Partial &&
		slices.EqualFunc(g.Specs, o.Specs, func(a, b Spec) bool { return a.Group == b.Group && a.Mask == b.Mask })
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
