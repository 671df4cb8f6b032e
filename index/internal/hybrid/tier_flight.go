package hybrid

// Arriving is a Prompt that may be described when it arrives, before the engine admits it.
type Arriving interface {
	Prompt
	// InFlight returns what else the member has in flight; false: the prompt is described as the
	// engine admits it.
	InFlight() (Flight, bool)
}

// Flight is what else a member has in flight when a prompt arrives.
type Flight struct {
	Others bool // requests are in flight there
	Shared int  // the most tokens that the prompt shares with the beginning of one whose blocks events have not all announced
}

// underWay returns the reason, in one sentence, why what the member that the prober probes takes
// and loads of a prompt may change until the prompt is admitted, or "". Evictions take nothing
// from a prompt that hits nothing, and a prompt in flight adds only what both share. vLLM keeps
// the blocks of a chunk on the GPU while it copies them.
func (l *Lookup) underWay(f *tierFacts, q *Query) string {
	arriving, ok := q.Prompt.(Arriving)
	if !ok {
		return ""
	}
	at, ok := arriving.InFlight()
	if !ok {
		return ""
	}
	held := l.guessBelow(f, q.Tokens).kept
	switch block := l.prober.plan.layout.Specs[l.prober.plan.mainSpec()].Block; {
	case at.Shared-at.Shared%block > held:
		return "a prompt with the same beginning is being computed there, so more may be hit once this one is admitted"
	case at.Others && held > 0:
		return "other requests are in flight there, which may evict blocks before this one is admitted, so less may be hit"
	case l.copying(f, q.Tokens, held):
		return "the connector may be copying the chunk behind what is held to CPU memory, so more may be loaded once this one is admitted"
	}
	return ""
}

// copying reports whether the GPU has the chunk behind the first tokens of a prompt, and the tier
// lacks it.
func (l *Lookup) copying(f *tierFacts, n, held int) bool {
	b := &l.prober
	spec := b.plan.layout.FullSpec()
	if f.by != Chunks || f.chunk <= 0 || spec < 0 {
		return false
	}
	block := b.plan.layout.Specs[spec].Block
	size := block * f.chunk
	end := (held/size + 1) * size
	return end <= n && b.Depth(spec, n/block)*block >= end
}
