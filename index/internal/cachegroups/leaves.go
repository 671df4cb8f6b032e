package cachegroups

// Dense is the retention of a cache that keeps all that windows need.
const Dense = -1

// Coming is a prompt that a cache will compute. All is in tokens.
type Coming struct {
	Tokens    int  // of it that can be hit
	Hit       int  // what it hits
	Full      int  // up to where full attention has it already
	Retention int  // vLLM's prefix_cache_retention_interval, or Dense; 0 also where that is not known
	Alone     bool // Hit and Full are not known, so of other kinds than full attention only the end counts
}

// Places are where a prompt can be hit, in tokens: at From, at To, and every Step between.
type Places struct{ From, To, Step int }

// MaxPlaces is how many Places a prompt leaves at most.
const MaxPlaces = 5

// Leaves appends where prompts hit what p leaves that share it up to there, and
// Behind further, and did not before. It is what vLLM keeps: of full attention and
// chunks each block; of windows what a prompt needs that goes on at p's end, at the
// junction where p leaves what full attention had, and at the multiples of the
// retention; of Mamba the states at the end and at the junction, for others are kept
// only where the scheduler happens to end a step. Where the windows that are kept
// meet, and from the start of a short prompt on, each place between is hit too.
func (g *Geometry) Leaves(dst []Places, a Assumed, p Coming) []Places {
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
	at, reach := p.Hit/l*l, g.reach(p.Retention) // up to at there is nothing new
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
	junction := 0
	if g.Rule != Rule021 {
		junction = max(0, p.Full-behind) / l * l
	}
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

// Behind is how many tokens behind a place a prompt must share to hit it: a block,
// where a draft model drops one.
func (g *Geometry) Behind(a Assumed) int {
	if !g.Known {
		return g.Align
	}
	for i := range g.Specs {
		if g.Drops(a.Eagle)>>i&1 != 0 && (g.Specs[i].Kind != Mamba || g.Rule == Rule021) {
			if g.Specs[i].Block == g.Specs[0].Block {
				return g.Specs[0].Block
			}
			return g.Align
		}
	}
	return 0
}

// reach is how many tokens apart two places may be for windows that are kept at both
// to have all between: more than any prompt where all is kept, 0 where Mamba states
// are not.
func (g *Geometry) reach(retention int) int {
	reach := maxAlign
	for i := range g.Specs {
		switch s := &g.Specs[i]; {
		case s.Kind == Mamba:
			return 0
		case s.Kind == Window && g.Rule != Rule021 && retention != Dense:
			reach = min(reach, s.WindowBlocks()*s.Block)
		}
	}
	return reach
}
