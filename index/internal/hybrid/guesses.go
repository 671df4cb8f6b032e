package hybrid

import "slices"

const (
	decay   = 0.99 // of a score, with each observation
	clearly = 2.5  // how many observations a guess must be ahead to replace the one in use
	enough  = 3    // observations in which another guess was wrong and the one in use right, to rule it out
	many    = 40   // the same, where even the kind of the only group is inferred
	recent  = 64   // observations to which the share of right predictions refers; so many right hits rule out a guess that never differed
)

// Guesses are the competing assumptions about one cache: sets of groups that drop a block,
// sizes of a chunk, lengths of a replayed window. Each guess differs in one of the three
// from the assumption in use.
type Guesses struct {
	layout *Layout
	use    Assumed
	all    []guess // the first one is in use

	settings Settings
	seen     int    // observations
	inferred bool   // the kind of the only group is inferred
	last     uint64 // the last predictions, a bit each: 1 if it was right
	switched int
}

type guess struct {
	Assumed
	score    float64
	beaten   int  // observations in which it was wrong and the guess in use right
	alike    int  // observations of a hit that it and the guess in use predicted
	differed bool // some prediction was not that of the guess in use
}

// ruledOut reports whether observations show that the guess in use is right rather than g.
func (g guess) ruledOut(inferred bool) bool {
	if inferred {
		return g.beaten >= many
	}
	return g.beaten >= enough || !g.differed && g.alike >= recent
}

// NewGuesses returns the guesses about a layout that the settings leave open.
func NewGuesses(g *Layout, t Settings) *Guesses {
	s := &Guesses{layout: g, settings: t, use: Assumed{Chunk: t.Chunk, Replay: t.Replay}}
	if t.EagleKnown {
		s.use.Eagle = t.Eagle
	}
	s.spread()
	return s
}

// Infer sets whether the kind of the only group is inferred: events have never left a block
// out of it.
func (s *Guesses) Infer(yes bool) { s.inferred = yes }

// Fit changes the layout. The assumption in use stays.
func (s *Guesses) Fit(g *Layout) {
	if s.layout.Same(g) {
		return
	}
	s.layout = g
	s.spread()
}

// Assumed returns the assumption in use.
func (s *Guesses) Assumed() Assumed { return s.use }

// Least returns the assumption with the fewest hits: the worst value of each setting that
// is not given.
func (s *Guesses) Least() Assumed {
	a := s.use
	if !s.settings.EagleKnown {
		a.Eagle = ^uint32(0)
	}
	if s.settings.Replay == 0 && !s.settings.ReplayKnown && a.Replay == 0 && s.layout.mayReplay() {
		a.Replay = maxAlign
	}
	return a
}

// spread lists the guesses around the one in use.
func (s *Guesses) spread() {
	s.all = append(s.all[:0], guess{Assumed: s.use})
	g := s.layout
	if g == nil || !g.Known {
		return
	}
	add := func(a Assumed) {
		if !slices.ContainsFunc(s.all, func(o guess) bool { return o.Assumed == a }) {
			s.all = append(s.all, guess{Assumed: a})
		}
	}
	if !s.settings.EagleKnown {
		every := uint32(0)
		for i := range g.Specs {
			every |= g.Specs[i].Mask
		}
		masks := []uint32{0, every}
		for i := range g.Specs {
			masks = append(masks, g.Specs[i].Mask)
		}
		for _, m := range masks {
			a := s.use
			a.Eagle = m
			add(a)
		}
	}
	if s.settings.Chunk == 0 && g.lacksChunk() {
		a := s.use
		a.Chunk = 0
		add(a)
		for c := g.Align; c <= 1<<17; c *= 2 {
			for _, a.Chunk = range []int{c, c + c/2} {
				if a.Chunk%g.Align == 0 {
					add(a)
				}
			}
		}
	}
	if s.settings.Replay == 0 && !s.settings.ReplayKnown && g.mayReplay() {
		a := s.use
		a.Replay = 0
		add(a)
		for k := 1; k <= 16; k++ {
			a.Replay = k * g.Step
			add(a)
		}
		for k := 32; k <= 1024; k *= 2 {
			a.Replay = k * g.Step
			add(a)
		}
	}
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

// List appends the assumptions, the one in use first.
func (s *Guesses) List(dst []Assumed) []Assumed {
	for i := range s.all {
		dst = append(dst, s.all[i].Assumed)
	}
	return dst
}

// Layout returns the layout of the guesses.
func (s *Guesses) Layout() *Layout { return s.layout }

// Predict appends the prediction of each assumption for a prompt.
func Predict(dst []int32, g *Layout, all []Assumed, n int, p Prober) []int32 {
	last := Assumed{Eagle: ^uint32(0)}
	hit := 0
	for _, a := range all {
		base := a
		base.Replay = 0
		if base != last { // assumptions that differ in the replayed window alone share a lookup
			hit, last = g.Hit(n, base, p), base
		}
		if hit <= a.Replay {
			dst = append(dst, 0)
		} else {
			dst = append(dst, int32(hit))
		}
	}
	return dst
}

// Learn compares predictions of Predict with the hit that vLLM has reported for the prompt,
// and reports whether another assumption is in use since.
func (s *Guesses) Learn(predicted []int32, reported int) (switched bool) {
	if len(predicted) != len(s.all) {
		return false // the predictions are of another layout, or of other guesses
	}
	right := int(predicted[0]) == reported
	s.seen++
	s.last <<= 1
	if right {
		s.last |= 1
	}
	best, differ := 0, false
	for i := range s.all {
		o := &s.all[i]
		switch {
		case predicted[i] != predicted[0]:
			o.differed, differ = true, true
			if right {
				o.beaten++
			}
		case right && reported > 0:
			o.alike++
		}
	}
	if !differ {
		return false
	}
	for i := range s.all {
		o := &s.all[i]
		o.score *= decay
		if int(predicted[i]) == reported {
			o.score++
		}
		if o.score > s.all[best].score {
			best = i
		}
	}
	if s.all[best].score < s.all[0].score+clearly {
		return false
	}
	s.change(s.all[best])
	return true
}

// change puts another guess in use. A guess that is listed again is beaten as often as the new
// one was right more often.
func (s *Guesses) change(to guess) {
	was := slices.Clone(s.all)
	s.use = to.Assumed
	s.switched++
	s.last, s.seen = 0, 0
	s.spread()
	for i := range s.all {
		g := &s.all[i]
		if at := slices.IndexFunc(was, func(o guess) bool { return o.Assumed == g.Assumed }); at >= 0 {
			g.beaten = max(0, int(to.score-was[at].score))
		}
	}
}

// Believed reports whether the hits that the replica has reported confirm the guess in use:
// they rule out every other one. Hits do not confirm a guess that has no other one beside it.
func (s *Guesses) Believed() bool {
	others := s.all[1:]
	if len(others) == 0 || slices.ContainsFunc(others, func(g guess) bool { return !g.ruledOut(s.inferred) }) {
		return false
	}
	n, right := min(s.seen, recent), 0
	for i := range n {
		right += int(s.last >> i & 1)
	}
	return right*100 >= n*95
}

// Seen returns how many hits were reported since the assumption in use changed, and how
// many of the last of them it predicted.
func (s *Guesses) Seen() (n, of, right int) {
	of = min(s.seen, recent)
	for i := range of {
		right += int(s.last >> i & 1)
	}
	return s.seen, of, right
}
