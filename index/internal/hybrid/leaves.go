package hybrid

import "math/bits"

// InFlight is a prompt that a cache will compute, in tokens.
type InFlight struct {
	Tokens    int  // the tokens that can be hit
	Hit       int  // the tokens that it hits
	Full      int  // the tokens that full attention holds already
	Retention int  // vLLM's prefix_cache_retention_interval, or RetainAll; 0 also if it is unknown
	Alone     bool // Hit and Full are unknown: other kinds than full attention keep only the end
}

// Places are tokens up to which a prompt can be hit: From, To, and every Step between.
type Places struct{ From, To, Step int }

// MaxPlaces bounds the Places that a prompt leaves.
const MaxPlaces = 5

// Leaves appends the places at which other prompts will hit p, beyond p's own hit. Such a
// prompt shares p up to the place and Behind tokens further. vLLM keeps each block of full
// attention and chunks. Of windows it keeps the blocks before three kinds of places: p's
// end, the junction at which p leaves the blocks that full attention had, and the multiples
// of the retention. Of Mamba it keeps the states at the end and at the junction; other
// states remain only where the scheduler happens to end a step. If kept windows meet, or
// reach back to the start of a short prompt, prompts hit p at each place between too.
func (g *Layout) Leaves(dst []Places, a Assumed, p InFlight) []Places {
	l, behind := g.Align, g.Behind(a)
	end := p.Tokens/l*l - (behind+l-1)/l*l
	put := func(from, to, step int) {
		if from <= a.Replay {
			from += (a.Replay - from + step) / step * step
		}
		if from = max(from, step); from <= to {
			dst = append(dst, Places{from, to, step})
		}
	}
	if !g.Known || p.Alone && g.full < len(g.Specs) {
		put(end, end, l)
		return dst
	}
	at, reach := p.Hit/l*l, g.reach(p.Retention) // the cache already has the places up to at
	keep := func(to int) {
		if to <= at || to > end {
			return
		}
		from := to
		if to-at <= reach {
			from = at + l
		}
		put(from, to, l)
		at = to
	}
	junction := max(0, p.Full-behind) / l * l
	if every := p.Retention; every > 0 && every%l == 0 && reach > 0 && g.Rule == Rule032 {
		last := end / every * every
		switch first := at/every*every + every; {
		case first > last:
		case every <= reach:
			put(at+l, last, l)
			at = last
		default:
			if junction < first {
				keep(junction)
			}
			keep(first)
			put(first, last, every)
			if first < junction && junction < last {
				put(junction, junction, l)
			}
			at = last
		}
	}
	keep(junction)
	keep(end)
	return dst
}

// Behind returns how many tokens behind a place a prompt must share to hit it: a block if a
// draft model drops one.
func (g *Layout) Behind(a Assumed) int {
	if !g.Known {
		return g.Align
	}
	specs := g.reallyDrop(a.Eagle)
	switch {
	case specs == 0:
		return 0
	case g.Specs[bits.TrailingZeros32(specs)].Block == g.Specs[0].Block:
		return g.Specs[0].Block
	}
	return g.Align
}

// reach returns the largest distance, in tokens, of two places whose kept windows cover all
// places between: unbounded if vLLM keeps all blocks, 0 with Mamba states.
func (g *Layout) reach(retention int) int {
	reach := maxAlign
	for i := range g.Specs {
		switch s := &g.Specs[i]; {
		case s.Kind == Mamba:
			return 0
		case s.Kind == Window && retention != RetainAll:
			reach = min(reach, s.WindowBlocks()*s.Block)
		}
	}
	return reach
}
