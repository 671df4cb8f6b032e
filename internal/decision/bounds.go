package decision

import (
	"slices"

	"warmroute/internal/decision/policy"
)

// bounded is the match of a request that is an upper bound.
type bounded struct {
	end    uint64 // the key of the block that ends it
	tokens int    // 0 = the match is no upper bound, or its answer shows nothing of it
}

// bounded returns the match of a request with candidate i if it is an upper bound that counts of
// the replica may correct: a prompt's whole blocks on GPU, all of them reported. Blocks on their
// way, or below the GPU, are not comparable with what was counted before.
func (d *Decider) bounded(mv *View, w *Work, i int32) bounded {
	c, h := &mv.holders[w.at[i]], &w.matched[w.at[i]]
	has := int(h.match[policy.GPU].Tokens)
	if c.replica.SGLang == nil || has == 0 || h.match.Learned() || h.shared > 0 || slices.ContainsFunc(h.match[policy.Coming:policy.Cut], func(s policy.Stretch) bool { return s.Tokens > 0 }) {
		return bounded{}
	}
	s := &mv.scopes[c.scope]
	if w.keysOf < 0 || len(w.ends) != 1 || mv.scopes[w.keysOf].BlockSize != s.BlockSize || has%s.BlockSize != 0 || has/s.BlockSize > len(w.keys) {
		return bounded{}
	}
	if t, ok := d.index.Trust(c.id, s.Tenant, s.Model); !ok || !t.Above {
		return bounded{}
	}
	return bounded{uint64(w.keys[has/s.BlockSize-1]), has}
}

// discount estimates what the candidates whose match is an upper bound will not find of it.
// Fleets without such replicas pay nothing.
func (d *Decider) discount(a *Ask, mv *View, w *Work) {
	if !mv.bounded || a.Prompts == nil {
		return
	}
	for i, at := range w.at {
		if b := d.bounded(mv, w, int32(i)); b.tokens > 0 {
			is := mv.holders[at].account.Bound(b.end, b.tokens)
			w.matched[at].unclaimed = int32(is.Unclaimed)
			if s := &w.cands[i].Match[policy.GPU]; s.Credit > 0 {
				s.Credit = 1 - float32(is.Unfound)/float32(b.tokens)
			}
		}
	}
}

// expectBound keeps the match of the chosen candidate, if it is an upper bound of one prompt,
// for its answer. It reports whether that is telling.
func (d *Decider) expectBound(a *Ask, mv *View, w *Work) (telling bool) {
	if !mv.bounded || a.Prompts == nil || a.Repeated || a.Cacheless {
		return false
	}
	best := w.ranked[0]
	if w.bound = d.bounded(mv, w, best); w.bound.tokens > 0 {
		telling = mv.holders[w.at[best]].account.Bound(w.bound.end, w.bound.tokens).Telling
	}
	return telling
}
