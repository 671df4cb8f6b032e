package index

// stored returns the Result of a Stored event that the model has not stored yet.
func (m *model) stored(t *forest, h Holder, tier Tier, nodes []int) Result {
	if m.leavesOut(t, h, tier, nodes) {
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

// remove removes blocks from the index and the model, and compares the counts. A block that goes
// before one that the event names later takes it along: then the order decides what each counts as.
func (w *world) remove(h Holder, tier Tier, nodes []int) {
	w.t.Helper()
	var want Result
	for _, n := range nodes {
		switch w.m.copies[h][place{tier, n}] {
		case 0:
			want.Unknown++
		case 1:
			want.Removed++
		default:
			want.Copies++
		}
		want.Orphaned += w.m.remove(w.f, h, tier, n)
	}
	got := w.apply(h, w.f.removed(h, tier, nodes...))
	if len(nodes) > 1 {
		gone := got.Removed + got.Orphaned
		if gone != want.Removed+want.Orphaned || got.Removed+got.Copies+got.Unknown != len(nodes) {
			w.t.Fatalf("%+v, want %d blocks gone, and %d named", got, want.Removed+want.Orphaned, len(nodes))
		}
		return
	}
	w.wantResult(want, got)
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
	distinct := map[place]bool{}
	for h, held := range w.m.copies {
		var blocks [tiers]int
		for _, n := range w.m.leased(h, w.clock.t) {
			distinct[place{tierLeased, n}] = true
		}
		for p, n := range held {
			if n > 0 {
				distinct[p] = true
				blocks[p.tier]++
			}
		}
		for tier := range Tier(tiers) {
			if got := w.x.TierHoldings(h, tier); got != blocks[tier] {
				w.t.Fatalf("step %d: %v holds %d blocks in tier %d, want %d", step, h, got, tier, blocks[tier])
			}
		}
	}
	if got := w.x.counts(); got.Blocks != len(distinct) || got.Holders != len(w.inc) {
		w.t.Fatalf("step %d: %d blocks of %d holders, want %d of %d", step, got.Blocks, got.Holders, len(distinct), len(w.inc))
	}
	for s, n := range w.x.Scopes() {
		if s != w.f.scope || n != len(distinct) {
			w.t.Fatalf("step %d: scope %+v has %d blocks, want %d", step, s, n, len(distinct))
		}
	}
}
