package cachegroups

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is what a group's layers read of a prompt's past.
type Kind uint8

const (
	Unknown Kind = iota
	Full         // all of it
	Window       // the last Window tokens
	Chunked      // back to the last multiple of Chunk
	Mamba        // one state
)

var kindNames = [...]string{Unknown: "unknown", Full: "full attention", Window: "sliding window", Chunked: "chunked attention", Mamba: "Mamba state"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// KindOf maps vLLM's kv_cache_spec_kind.
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

// WindowBlocks is how many blocks the window takes before the next token.
func (g *Group) WindowBlocks() int { return (g.Window - 1 + g.Block - 1) / g.Block }

// Rule is a generation of vLLM's lookup.
type Rule uint8

const (
	RuleUnknown Rule = iota
	Rule021          // as in vLLM 0.21
	Rule032          // as in vLLM 0.32
	Rule027          // as in vLLM 0.27: as 0.32, but a group that drops a block looks no further than the last token but one
)

// MaxGroups is how many groups a cache may have.
const MaxGroups = 32

// Spec is the groups that are looked up together: a block counts when all of
// them hold it.
type Spec struct {
	Group         // of the first
	Groups []int  // their indices
	Mask   uint32 // the same, as bits
}

// Geometry is what a cache consists of.
type Geometry struct {
	Rule    Rule
	Specs   []Spec // full attention first, else by the first group's index
	Align   int    // L: the least common multiple of all blocks
	Unit    int    // u: tokens per hash
	Step    int    // A: hits are multiples of it
	Partial bool   // Mamba states inside blocks are cached
	Known   bool   // every group's kind is known, so that Hit is vLLM's; else only Bound holds

	full   int // full-attention specs, the first ones
	finest int // the smallest block
}

// NewGeometry works out a cache's geometry. unit is vLLM's prefix_match_unit (0.21:
// hash_block_size), 0 when not set. nil: there is no group with a block size yet.
func NewGeometry(rule Rule, groups []Group, unit int) *Geometry {
	g := &Geometry{Rule: rule, Known: rule != RuleUnknown}
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
		if c := cmp.Compare(order(a.Kind), order(b.Kind)); c != 0 {
			return c
		}
		return cmp.Compare(a.Index, b.Index)
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

func (g *Geometry) add(one Group) {
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

// maxAlign bounds the least common multiple of blocks: beyond every context.
const maxAlign = 1 << 30

func (g *Geometry) measure(unit int) {
	g.Align, g.Unit, g.finest = 1, 0, g.Specs[0].Block
	fine := true // every group can be probed inside blocks, or has blocks of one unit
	inside := false
	for i := range g.Specs {
		b := g.Specs[i].Block
		g.Align = min(g.Align/gcd(g.Align, b)*b, maxAlign)
		g.Unit = gcd(g.Unit, b)
		g.finest = min(g.finest, b)
	}
	told := unit > 0 && g.Unit%unit == 0
	if len(g.Specs) == 1 && len(g.Specs[0].Groups) == 1 {
		g.Step = g.Align
		return
	}
	if told {
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
	g.Partial = g.Rule != Rule021 && inside && fine
	g.Step = g.Align
	if g.Partial {
		g.Step = g.Unit
	}
}

// one reports whether the cache is a single group, which vLLM looks up by itself.
func (g *Geometry) one() bool { return len(g.Specs) == 1 && len(g.Specs[0].Groups) == 1 }

// Plain reports whether the cache is one group of full attention: whatever is held
// from the start is hit.
func (g *Geometry) Plain() bool { return g.one() && g.Specs[0].Kind == Full }

// FullSpec is the only full-attention spec of one group, -1 when there is none or
// several.
func (g *Geometry) FullSpec() int {
	if g.full == 1 && len(g.Specs[0].Groups) == 1 {
		return 0
	}
	return -1
}

// Even reports whether kinds are not known, but all groups have blocks of one size,
// so that those of one group show where all others lie.
func (g *Geometry) Even() bool {
	return !g.Known && len(g.Specs) > 1 && len(g.Specs[0].Groups) == 1 && g.finest == g.Align
}

// ByTokens reports whether the blocks of full attention show where all others lie,
// so that no hash of vLLM is needed: their boundaries are the finest there are.
func (g *Geometry) ByTokens() bool {
	if !g.Known || g.full == 0 || g.Partial {
		return false
	}
	b := 0
	for i := range g.full {
		b = gcd(b, g.Specs[i].Block)
	}
	for i := range g.Specs {
		if g.Specs[i].Block%b != 0 {
			return false
		}
	}
	return g.full == 1
}

// Drops returns which specs drop a block when the groups in a mask have a draft
// model's layers, as bits.
func (g *Geometry) Drops(groups uint32) (specs uint32) {
	for i := range g.Specs {
		if g.Specs[i].Mask&groups != 0 {
			specs |= 1 << i
		}
	}
	return specs
}

// Same reports whether two geometries are one.
func (g *Geometry) Same(o *Geometry) bool {
	if g == nil || o == nil {
		return g == o
	}
	return g.Rule == o.Rule && g.Unit == o.Unit && g.Known == o.Known && g.Partial == o.Partial &&
		slices.EqualFunc(g.Specs, o.Specs, func(a, b Spec) bool { return a.Group == b.Group && a.Mask == b.Mask })
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
