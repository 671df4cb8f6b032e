package index

// stored returns the Result of a Stored event that the model has not stored yet.
func (m *model) stored(t *forest, h Holder, tier Tier, nodes []int) Result {
	if parent := t.parent[nodes[0]]; m.linked && parent >= 0 && !m.knows(h, parent) {
		return Result{Orphaned: len(nodes)}
	}
	var res Result
	for _, n := range nodes {
		if m.copies[h][place{tier, n}] > 0 {
			res.Repeated++
		} else {
			res.Stored++
		}
	}
	return res
}

// removed returns the Result of a Removed event whose blocks the model still has.
func (m *model) removed(h Holder, tier Tier, nodes []int) Result {
	var res Result
	for _, n := range nodes {
		switch m.copies[h][place{tier, n}] {
		case 0:
			res.Unknown++
		case 1:
			res.Removed++
		default:
			res.Copies++
		}
	}
	return res
}

func (w *world) wantResult(want, got Result) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("%+v, want %+v", got, want)
	}
}

// checkStats compares counts of blocks and holders.
func (w *world) checkStats(step int) {
	w.t.Helper()
	distinct := map[int]bool{}
	for h, held := range w.m.copies {
		var blocks [tiers]int
		for p, n := range held {
			if n > 0 {
				distinct[p.node] = true
				blocks[p.tier]++
			}
		}
		for tier := range Tier(tiers) {
			if got := w.x.TierHoldings(h, tier); got != blocks[tier] {
				w.t.Fatalf("step %d: %v holds %d blocks in tier %d, want %d", step, h, got, tier, blocks[tier])
			}
		}
	}
	if got := w.x.Stats(); got.Blocks != len(distinct) || got.Holders != len(w.inc) {
		w.t.Fatalf("step %d: %d blocks of %d holders, want %d of %d", step, got.Blocks, got.Holders, len(distinct), len(w.inc))
	}
	for s := range w.x.Scopes() {
		if s.Scope != w.f.scope || s.Blocks != len(distinct) {
			w.t.Fatalf("step %d: scope %+v has %d blocks, want %d", step, s.Scope, s.Blocks, len(distinct))
		}
	}
}
