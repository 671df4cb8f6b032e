package decision

import (
	"math"
	"sync/atomic"
	"time"

	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/learned"
	"warmroute/prefixhash"
)

// remembered is the number of keys of which a reuse knows the last use, a power of two. A new key
// takes the place of an older one.
const remembered = 1 << 16

// tick is the unit of time of a reuse, in bits of a ns: about 1 ms. Times in 32 bits begin again
// after 52 days.
const tick = 20

// The weights of one prompt in what a reuse learns: the latest 128 decide how long it takes,
// the latest thousand what is cached.
const (
	againShare = 1. / 128
	hitShare   = 1. / 1024
)

// mostReuse bounds how often a stored token is taken to be used again.
const mostReuse = 9

// reuse is how the prompts of a model are used again, wherever they were cached. It is safe for
// concurrent use, and waits for nobody.
type reuse struct {
	last  atomic.Pointer[lastUses] // nil before the first prompt
	again learned.Ratio            // ticks since the last use of the deepest known key of a prompt had ended
	hit   learned.Ratio            // tokens of prompts that some holder had
}

// lastUses has, by a key's low bits, its high half and the time of its last use: of the request's
// end for the last key of its prompt, else of its arrival.
type lastUses [remembered]atomic.Uint64

// uses returns the last uses, and makes them for the first prompt.
func (r *reuse) uses() *lastUses {
	if r.last.Load() == nil {
		r.last.CompareAndSwap(nil, new(lastUses))
	}
	return r.last.Load()
}

// asked records a prompt by its keys at marks. Where no mark is known, the prompt is new.
func (r *reuse) asked(p history.Prompt, now time.Time) {
	at, last := uint64(uint32(now.UnixNano()>>tick)), r.uses()
	for i := len(p.Keys) - 1; i >= 0; i-- {
		k := uint64(p.Keys[i])
		to := &last[k%remembered]
		was := to.Swap(k>>32<<32 | at)
		if was>>32 == k>>32 && was != 0 {
			r.again.Add(float64(uint32(at)-uint32(was)), 1, againShare)
			return
		}
	}
}

// ended records the end of a request whose prompt has this last key. Prompts that go on from it
// wait from then on: a conversation is in nobody's way while its answer runs.
func (r *reuse) ended(last prefixhash.Key, now time.Time) {
	k := uint64(last)
	to := &r.uses()[k%remembered]
	if was := to.Load(); was>>32 == k>>32 && was != 0 {
		to.CompareAndSwap(was, k>>32<<32|uint64(uint32(now.UnixNano()>>tick)))
	}
}

// found records how many tokens of a request's prompts some holder had.
func (r *reuse) found(tokens, of int) {
	r.hit.Add(float64(tokens), float64(of), hitShare)
}

// known returns the time after which prompts are used again, from the end of one to the arrival of
// the next, and how often a stored token is
// used: 0 before the first.
func (r *reuse) known() (again time.Duration, times float64) {
	h := min(r.hit.Of(0, 0), mostReuse/(mostReuse+1.))
	return time.Duration(max(1, r.again.Of(0, 0)*(1<<tick))), h / (1 - h)
}

// pricesSpace reports whether what is evicted for a request has a price.
func (a *Ask) pricesSpace(set *policy.Settings) bool {
	return set.TTFT.Space > 0 && set.Policy == policy.NameTTFT && (a.Prompts != nil || a.Text != nil) && !a.Cacheless
}

// priceSpace fills in what the candidates would evict for the request, beyond what the best of
// them would, and returns how often a stored token is used: nothing where it is not known of all
// of them what they would evict.
func (w *Work) priceSpace(a *Ask, mv *View, set *policy.Settings) (times float64) {
	if !a.pricesSpace(set) || w.apart {
		return 0
	}
	grown := w.Record.Tokens + w.answerTokens(a, mv)
	for i, at := range w.at {
		c := &w.cands[i]
		c.Room, c.Crowding = mv.holders[at].history.Room(grown - c.Match.Cached())
	}
	again, times := mv.reuse.known()
	if times == 0 {
		return 0
	}
	least := 1.0
	for i, at := range w.at {
		share, known := mv.holders[at].history.Worth(w.Record.Tokens-w.cands[i].Match.Cached(), w.LookedUp, again)
		if !known || w.matched[at].grouped {
			for j := range i {
				w.cands[j].Space = 0
			}
			return 0
		}
		w.cands[i].Space, least = share, min(least, share)
	}
	for i := range w.cands {
		w.cands[i].Space -= least
	}
	return times
}

// answerTokens returns the tokens that the answer is expected to have, the mean over the candidates: one
// whose latest answers were short by chance would draw all requests.
func (w *Work) answerTokens(a *Ask, mv *View) int {
	sum := 0
	for _, at := range w.at {
		sum += a.answer(&mv.holders[at])
	}
	return sum / max(1, len(w.at))
}

// mostLosers bounds how often candidates are ranked again for a request.
const mostLosers = 4

// loses reports whether requests on their way to candidate i will evict tokens that it is taken to
// have, and takes the credit of these. It tells only of requests with one prompt. The tokens stay
// in the match, and in the prediction: the replica has them now, and nobody doubts that.
func (w *Work) loses(a *Ask, mv *View, i int32) bool {
	at, s := &mv.holders[w.at[i]], &w.cands[i].Match[policy.GPU]
	if s.Credit == 0 || s.Tokens == 0 || !at.reports() {
		return false
	}
	w.mark(a, mv, at)
	if len(w.marked.ends) != 1 {
		return false
	}
	kept, lost := at.history.Keeps(history.Prompt{Keys: w.marked.keys, Marks: w.marked.marks})
	credit := max(float32(kept)/float32(s.Tokens), math.SmallestNonzeroFloat32)
	if !lost || credit >= s.Credit {
		return false
	}
	s.Credit = credit
	return true
}

// noteUse records the prompts of a request that is placed, of which some candidate has the
// deepest tokens. Their keys are marked.
func (w *Work) noteUse(mv *View, deepest int) {
	w.marked.each(func(p history.Prompt, _ int) { mv.reuse.asked(p, w.LookedUp) })
	mv.reuse.found(min(deepest, w.Record.Tokens), w.Record.Tokens)
}
