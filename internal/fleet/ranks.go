package fleet

import (
	"fmt"
	"slices"
	"time"
)

// show records the ranks of the present page. A new one may publish events, which are asked for
// then; where another one has gone, too, the server has come back as another node of its deployment,
// whose header counts from another rank.
func (w *worker) show() {
	before := len(w.shown)
	for i := range w.loads {
		if rank := w.loads[i].Rank; !slices.Contains(w.shown, rank) {
			w.shown = append(w.shown, rank)
		}
	}
	if !w.up || before == 0 || len(w.shown) == before {
		return
	}
	if w.nextLearn = (time.Time{}); len(w.shown) > len(w.loads) {
		w.start = another
	}
}

// ranks returns the data-parallel ranks behind the address, and the one that the server's
// header calls 0 (Replica.FirstRank). A rank that its metrics have shown and show no more is
// gone, though its event sources may name it until they are asked for again.
func (w *worker) ranks() (ranks []int, first int) {
	var all []int
	for _, e := range w.known.Events {
		all = append(all, e.Rank)
	}
	all = append(all, w.shown...)
	for _, rank := range all {
		if !slices.Contains(w.shown, rank) || slices.ContainsFunc(w.loads, func(l Load) bool { return l.Rank == rank }) {
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) == 0 {
		ranks, all = []int{0}, []int{0}
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	return ranks[:min(len(ranks), maxRanks)], w.first(slices.Min(all))
}

// numbered gives configured sources the ranks of the page, in their order, where it shows none of
// theirs: a page counts the ranks of the deployment, and the file those of the server. It refuses
// those that the page does not show: the server answers 400 to such a rank.
func (w *worker) numbered(sources []EventSource) (own []EventSource, refused []string) {
	if len(w.shown) == 0 {
		return sources, nil
	}
	shown := func(e EventSource) bool { return slices.Contains(w.shown, e.Rank) }
	by := 0
	if !slices.ContainsFunc(sources, shown) {
		by = slices.Min(w.shown) - sources[0].Rank
	}
	for _, e := range sources {
		if e.Rank += by; shown(e) {
			own = append(own, e)
		} else {
			refused = append(refused, fmt.Sprintf("rank %d of the configuration: its /metrics show no such rank", e.Rank))
		}
	}
	return own, refused
}

// first returns the rank that the header calls 0 where lowest is the lowest one. vLLM's Python
// server counts its own ranks, and those of a node that is not the first begin above 0; its
// Rust front end, which says so at /version, counts those of the whole deployment.
func (w *worker) first(lowest int) int {
	seen := len(w.shown) > 0 || len(w.options.Events) == 0
	switch {
	case lowest == 0 || w.known.rust || w.known.SGLang != nil:
		return 0
	case w.known.Version == "" || !seen || otherEngine(w.known.Engine):
		return -1
	}
	return lowest
}
