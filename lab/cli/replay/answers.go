package replay

import (
	"slices"

	"warmroute/lab/simulator"
)

// answers has what a trace shows of the answers to its requests. A replica keeps an
// answer's blocks, too, and the next prompt of a conversation has them. The trace says how
// much of a prompt some replica had: blocks that no prompt had before it, but a replica
// has, are the answer to the prompt that ends where they begin.
type answers struct {
	known  []int // tokens of a request's answer, to half a block; 0 = not known
	parent []int // the request whose prompt a request continues; -1 = none
	news   []int // blocks of a request's prompt before the first that is new

	reused, dropped int // continuations of a cached prompt with the answer cached, and without it
	typical         int // tokens of an answer; 0 = too few are known
	before          int // tokens that were cached before the trace began
}

// leastAnswers are enough to know the length of a typical one.
const leastAnswers = 10

func findAnswers(t *simulator.Trace, all []traced) *answers {
	n := len(t.Requests)
	a := &answers{known: make([]int, n), parent: make([]int, n), news: make([]int, n)}
	seen := make([]bool, t.Blocks)
	last := make([]int32, t.Blocks) // block → 1 + the latest request whose prompt ends with it
	var lengths []int
	for i := range t.Requests {
		r := &t.Requests[i]
		k := slices.IndexFunc(r.Blocks, func(b int32) bool { return !seen[b] })
		if k < 0 {
			k = len(r.Blocks)
		}
		held := min(all[i].Held/t.Block, len(r.Blocks))
		a.news[i], a.parent[i] = k, -1
		if k > 0 && k < len(r.Blocks) {
			a.parent[i] = int(last[r.Blocks[k-1]]) - 1
		}
		p := a.parent[i]
		switch {
		case held > k && p >= 0:
			a.reused++
			// The last block of an answer is rarely full.
			if known := all[i].Held + all[i].BlockTokens/2 - t.Requests[p].Input; known > a.known[p] {
				a.known[p] = known
				t.Requests[p].Answer = r.Blocks[k:held]
				lengths = append(lengths, known)
			}
		case held > k:
			a.before += (held - k) * t.Block
		case held == k && p >= 0:
			a.dropped++
		}
		for _, b := range r.Blocks {
			seen[b] = true
		}
		if k := len(r.Blocks); k > 0 {
			last[r.Blocks[k-1]] = int32(i) + 1
		}
	}
	for i := range all { // a replica's own count is exact
		if n := min(all[i].counted.Output, maxOutput); n > 0 {
			a.known[i] = max(n, len(t.Requests[i].Answer)*t.Block)
			lengths = append(lengths, n)
		}
	}
	if len(lengths) >= leastAnswers {
		slices.Sort(lengths)
		a.typical = lengths[len(lengths)/2]
	}
	return a
}

// fill sets the lengths of the answers. If the trace shows that answers are reused, it
// gives a continued prompt whose answer was evicted everywhere, or not seen yet, a typical
// one.
func (a *answers) fill(t *simulator.Trace, output int) {
	if output == 0 {
		output = a.typical
	}
	if output == 0 {
		output = typicalOutput
	}
	for i := range t.Requests {
		t.Requests[i].Output = max(output, a.known[i])
	}
	if a.reused <= a.dropped {
		return
	}
	for i := range t.Requests {
		r := &t.Requests[i]
		if a.parent[i] < 0 {
			continue
		}
		p, k := &t.Requests[a.parent[i]], a.news[i]
		if end := min((p.Input+p.Output)/t.Block, len(r.Blocks)); p.Answer == nil && end > k {
			p.Answer = r.Blocks[k:end]
		}
	}
}
