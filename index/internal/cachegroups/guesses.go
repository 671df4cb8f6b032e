package cachegroups

import "slices"

// Settings are what the configuration, a label or a model's files give of a cache; they have priority over
// events and observations.
type Settings struct {
	Rule        Rule
	Groups      []Group // by Index; zero fields are not given
	Filed       []Group // all of them, as the model's files have it: taken where events name no kinds and show the same groups
	Unit        int     // prefix_match_unit
	Block       int     // of the groups whose first blocks are partial
	Eagle       uint32
	EagleKnown  bool
	Chunk       int
	Retention   int // prefix_cache_retention_interval, or Dense; 0 also where it is not known
	Replay      int
	ReplayKnown bool // also when there is none
	Reports     bool // requests have what they hit announced again
	// Doubt is why predictions may still be wrong, one sentence. It holds
	// until the replica's own counts have agreed with them.
	Doubt string
	// Limit is the same where no count can clear the doubt away. It does not matter
	// for a cache that is one group of full attention alone.
	Limit string
}

const (
	decay   = 0.99 // of a score, with each observation
	clearly = 2.5  // how many observations a guess must be ahead to replace the one in use
	enough  = 3    // observations that distinguish guesses, to confirm the one in use
	many    = 40   // the same, where even the kind of the only group is inferred
	alike   = 8    // hits as predicted, to confirm where guesses never differ
	recent  = 64   // observations that the share of right predictions is of
)

// Guesses are the assumptions of one cache that compete: sets of groups that drop
// a block, sizes of a chunk, lengths of a replayed window. The three vary one at a
// time around the ones in use.
type Guesses struct {
	geometry *Geometry
	use      Assumed
	all      []guess // [0] is what is in use

	settings Settings
	evidence int    // observations that distinguished guesses, and were predicted
	seen     int    // observations
	differed bool   // some observation distinguished guesses
	hits     int    // that were as predicted, and not zero
	inferred bool   // the kind of the only group is
	last     uint64 // the last ones, 1 where the prediction was right
	switched int
}

type guess struct {
	Assumed
	score float64
}

// NewGuesses begins with the settings; otherwise nothing is assumed.
func NewGuesses(g *Geometry, t Settings) *Guesses {
	s := &Guesses{geometry: g, settings: t, use: Assumed{Chunk: t.Chunk, Replay: t.Replay}}
	if t.EagleKnown {
		s.use.Eagle = t.Eagle
	}
	s.spread()
	return s
}

// Infer reports whether the kind of the only group is inferred from what was never
// left out of it.
func (s *Guesses) Infer(yes bool) { s.inferred = yes }

// Fit keeps what was learned when the geometry has changed.
func (s *Guesses) Fit(g *Geometry) {
	if s.geometry.Same(g) {
		return
	}
	s.geometry = g
	s.spread()
}

// Assumed is what is in use.
func (s *Guesses) Assumed() Assumed { return s.use }

// Least is the assumption with the fewest hits: a setting that is not given is
// taken for the worst.
func (s *Guesses) Least() Assumed {
	a := s.use
	if !s.settings.EagleKnown {
		a.Eagle = ^uint32(0)
	}
	if s.settings.Replay == 0 && !s.settings.ReplayKnown && a.Replay == 0 && s.geometry.mayReplay() {
		a.Replay = maxAlign
	}
	return a
}

// spread lists the guesses around the ones in use.
func (s *Guesses) spread() {
	s.all = append(s.all[:0], guess{Assumed: s.use})
	g := s.geometry
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
	if s.settings.Chunk == 0 && slices.ContainsFunc(g.Specs, func(p Spec) bool { return p.Kind == Chunked && p.Chunk == 0 }) {
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

// mayReplay reports whether there may be groups that cache nothing: a number is
// missing among the groups', or the attention is of the kind that has such.
func (g *Geometry) mayReplay() bool {
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

// Geometry is what the guesses are about.
func (s *Guesses) Geometry() *Geometry { return s.geometry }

// Predict appends the prediction of each assumption for a prompt.
func Predict(dst []int32, g *Geometry, all []Assumed, n int, p Prober) []int32 {
	last := Assumed{Eagle: ^uint32(0)}
	hit := 0
	for _, a := range all {
		base := a
		base.Replay = 0
		if base != last { // those that differ in the replayed window share a lookup
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

// Learn takes what vLLM has reported for a prompt that was given to Predict.
//
// It reports whether other assumptions are in use since.
func (s *Guesses) Learn(predicted []int32, reported int) (switched bool) {
	if len(predicted) != len(s.all) {
		return false // of another geometry, or of other guesses
	}
	right := int(predicted[0]) == reported
	s.seen++
	s.last <<= 1
	if right {
		s.last |= 1
	}
	differ := slices.ContainsFunc(predicted, func(p int32) bool { return p != predicted[0] })
	s.differed = s.differed || differ
	switch {
	case right && differ:
		s.evidence++
	case right && reported > 0:
		s.hits++
	}
	if !differ {
		return false
	}
	best := 0
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
	if s.all[best].score >= s.all[0].score+clearly {
		s.use = s.all[best].Assumed
		s.switched++
		s.evidence = int(s.all[best].score)
		s.last, s.seen, s.hits = 0, 0, 0
		s.spread()
		return true
	}
	return false
}

// Believed reports whether the guess in use has predicted what the cache reported.
func (s *Guesses) Believed() bool {
	wanted := enough
	if s.inferred {
		wanted = many
	}
	if s.evidence < wanted && (s.differed || s.hits < alike || s.inferred) {
		return false
	}
	n, right := min(s.seen, recent), 0
	for i := range n {
		right += int(s.last >> i & 1)
	}
	return right*100 >= n*95
}

// Seen is how many reports there were since the assumptions last changed, and how
// many of the last of them were as predicted.
func (s *Guesses) Seen() (n, of, right int) {
	of = min(s.seen, recent)
	for i := range of {
		right += int(s.last >> i & 1)
	}
	return s.seen, of, right
}
