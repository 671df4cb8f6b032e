package vllmsim

import (
	"errors"
	"fmt"
	"slices"
)

// Kind is the attention of a KV cache group's layers, by its name in vLLM's events.
type Kind string

// The kinds of groups a replica can have.
const (
	FullAttention    Kind = "full_attention"
	MLAAttention     Kind = "mla_attention"
	SlidingWindow    Kind = "sliding_window"
	SlidingWindowMLA Kind = "sliding_window_mla"
	ChunkedAttention Kind = "chunked_local_attention"
	Mamba            Kind = "mamba" // with mamba_cache_mode "align"
)

// Group is one KV cache group: layers that share a block table. All groups take
// their blocks from one pool.
type Group struct {
	Kind      Kind
	BlockSize int // tokens, default Options.BlockSize
	Window    int // tokens of a sliding window
	Chunk     int // tokens of an attention chunk
}

func (g Group) full() bool     { return g.Kind == FullAttention || g.Kind == MLAAttention }
func (g Group) windowed() bool { return g.Kind == SlidingWindow || g.Kind == SlidingWindowMLA }

// skipped returns the number of first computed tokens that no later token reads.
func (g Group) skipped(computed int) int {
	switch {
	case g.windowed():
		return max(0, computed-g.Window+1)
	case g.Kind == ChunkedAttention:
		return computed / g.Chunk * g.Chunk
	case g.Kind == Mamba:
		return max(0, computed-1)
	}
	return 0
}

// layout has a replica's groups and the values that depend on them.
type layout struct {
	groups []Group
	specs  []spec
	unit   int // tokens of a hash: the greatest common divisor of the block sizes
	align  int // a hit is a multiple of so many tokens: the least common multiple of the block sizes
	eagle  bool
	drops  []bool // by group: whether a hit drops its last block
	mamba  bool
}

// spec has groups that are alike; a lookup treats them as one.
type spec struct {
	Group
	groups []int // group indices
	drop   bool
}

// layoutOf returns the layout of o, whose defaults are filled in.
func layoutOf(o Options) layout {
	l := layout{groups: o.Groups, unit: o.Groups[0].BlockSize, align: 1, eagle: len(o.Eagle) > 0}
	for i, g := range l.groups {
		l.unit = gcd(l.unit, g.BlockSize)
		l.align = l.align / gcd(l.align, g.BlockSize) * g.BlockSize
		l.mamba = l.mamba || g.Kind == Mamba
		drop := slices.Contains(o.Eagle, i)
		l.drops = append(l.drops, drop)
		at := slices.IndexFunc(l.specs, func(s spec) bool { return s.Group == g })
		if at < 0 {
			at = len(l.specs)
			l.specs = append(l.specs, spec{Group: g})
		}
		l.specs[at].groups = append(l.specs[at].groups, i)
		l.specs[at].drop = l.specs[at].drop || drop
	}
	for _, s := range l.specs {
		for _, i := range s.groups {
			l.drops[i] = s.drop // the groups of a spec drop together
		}
	}
	// A lookup begins with full attention, then takes the other specs in their order.
	all := l.specs
	l.specs = slices.DeleteFunc(slices.Clone(all), func(s spec) bool { return !s.full() })
	l.specs = append(l.specs, slices.DeleteFunc(all, spec.full)...)
	return l
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// groupDefaults fills in defaults. Without groups, a replica has one of full attention.
func (o *Options) groupDefaults() {
	if len(o.Groups) == 0 {
		o.Groups = []Group{{Kind: FullAttention}}
	}
	o.Groups = slices.Clone(o.Groups)
	for i := range o.Groups {
		if o.Groups[i].BlockSize == 0 {
			o.Groups[i].BlockSize = o.BlockSize
		}
	}
}

// validateGroups returns an error for groups that no vLLM runs, or that this package does
// not simulate.
func (o Options) validateGroups() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("vllmsim: "+format, args...)) }
	plain := len(o.Groups) == 1 && o.Groups[0].full()
	if o.Version != V032 && (!plain || len(o.Eagle) > 0) {
		bad("Groups and Eagle are for version %s, Version is %q", V032, o.Version)
	}
	for i, g := range o.Groups {
		switch {
		case g.BlockSize < 1:
			bad("group %d has blocks of %d tokens, it must be at least 1", i, g.BlockSize)
			return errors.Join(errs...)
		case g.windowed() && g.Window < 1:
			bad("group %d has a window of %d tokens, it must be at least 1", i, g.Window)
		case g.Kind == ChunkedAttention && g.Chunk < 1:
			bad("group %d has chunks of %d tokens, it must be at least 1", i, g.Chunk)
		case !g.full() && !g.windowed() && g.Kind != ChunkedAttention && g.Kind != Mamba:
			bad("group %d is of kind %q, it must be full_attention, mla_attention, sliding_window, sliding_window_mla, chunked_local_attention or mamba", i, g.Kind)
		}
	}
	l := layoutOf(o)
	for i, g := range o.Groups {
		if (g.full() || g.Kind == Mamba) && g.BlockSize != l.unit || g.Kind == ChunkedAttention && g.BlockSize != l.align {
			bad("group %d has blocks of %d tokens beside a hash unit of %d and an alignment of %d: partial blocks are not simulated", i, g.BlockSize, l.unit, l.align)
		}
		if g.Kind == ChunkedAttention && l.drops[i] {
			bad("group %d is chunked: vLLM does not draft with EAGLE there", i)
		}
	}
	for _, i := range o.Eagle {
		if i < 0 || i >= len(o.Groups) {
			bad("Eagle names group %d, there are %d", i, len(o.Groups))
		}
	}
	if o.Draft < 0 || o.Draft > 0 && !l.eagle {
		bad("Draft is %d, it must not be negative and needs Eagle", o.Draft)
	}
	if o.Retention < Dense || o.Retention > 0 && o.Retention%l.align != 0 {
		bad("Retention is %d, it must be %d (dense), 0 or a multiple of %d", o.Retention, Dense, l.align)
	}
	return errors.Join(errs...)
}
