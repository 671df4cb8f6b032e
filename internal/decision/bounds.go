package decision

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
	if c.replica.SGLang == nil || h.gpu == 0 || h.gpu != h.reported || h.learned || h.cpu+h.storage+h.shared > 0 {
		return bounded{}
	}
	s := &mv.scopes[c.scope]
	if w.keysOf < 0 || len(w.ends) != 1 || mv.scopes[w.keysOf].BlockSize != s.BlockSize || h.gpu%s.BlockSize != 0 || h.gpu/s.BlockSize > len(w.keys) {
		return bounded{}
	}
	if t, ok := d.index.Trust(c.id, s.Tenant, s.Model); !ok || !t.Above {
		return bounded{}
	}
	return bounded{uint64(w.keys[h.gpu/s.BlockSize-1]), h.gpu}
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
			if !w.cands[i].Doubted {
				w.cands[i].Unfound = int32(is.Unfound)
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
