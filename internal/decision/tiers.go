package decision

import (
	"cmp"
	"slices"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// announcedStore is the name of the store of replicas whose KV events have told of a shared
// one, without a name.
const announcedStore = "announced"

// storeOf returns the name of the store that a replica shares, "" if none is known.
func storeOf(r *fleet.Replica, a *load.Account) string {
	switch {
	case r.Store == fleet.NoStore:
		return ""
	case r.Store == "" && a.SharesStore():
		return announcedStore
	}
	return r.Store
}

// numberStores numbers the stores that holders share.
func (mv *View) numberStores() {
	var names []string
	for i := range mv.holders {
		c := &mv.holders[i]
		name := storeOf(c.replica, c.account)
		if name == "" {
			continue
		}
		at := slices.Index(names, name)
		if at < 0 {
			at = len(names)
			names = append(names, name)
		}
		c.store = at + 1
	}
	mv.stores = len(names)
}

// below adds what a holder has of a prompt below its GPU, besides gpu tokens on it.
func (h *held) below(c *holder, m *index.Match, gpu, block int) {
	cpu, storage := int(m.Lower)*block-gpu, int(m.Storage-m.Lower)*block
	if m.Grouped {
		cpu, storage = max(0, int(m.Hit+m.Loaded)-gpu), 0
	}
	if c.store > 0 { // share adds what is in the store
		storage = 0
		if c.replica.OnlyShared() {
			cpu = 0
		}
	}
	h.match[policy.CPU].Tokens += int32(cpu)
	h.match[policy.Storage].Tokens += int32(storage)
}

// stored returns the tokens of a prompt that a holder has told of, in any place. What it has
// told of on its GPU is in its store too: connectors write every block through.
func stored(m *index.Match, block int) int {
	if m.Grouped {
		return int(m.Hit + m.Loaded)
	}
	return int(m.Storage) * block
}

// emptyStores prepares w.stores for the next prompt.
func (w *Work) emptyStores(mv *View) {
	if mv.stores > 0 {
		w.stores = append(w.stores[:0], make([]int, mv.stores+1)...)
	}
}

// share credits what holders have stored of one prompt to all with the same store.
func (w *Work) share(mv *View, scope int) {
	for i := range mv.holders {
		if c := &mv.holders[i]; c.store > 0 && c.scope == scope {
			w.matched[i].shared += w.stores[c.store]
		}
	}
}

// credit gives the stretches of a complete match their credit. found is the share of what is
// below the GPU that is there, where no event tells when blocks are gone.
func (h *held) credit(found float64) {
	for p := range policy.Cut {
		s := &h.match[p]
		s.Source, s.Credit = max(s.Source, policy.Reported), 1
		if p == policy.Shared || p >= policy.CPU && !h.grouped { // else its events tell
			s.Credit = float32(found)
		}
	}
}

// credited returns the tokens below the GPU of which no event tells when they are gone.
func (h *held) credited() int64 {
	n := h.match[policy.Shared].Tokens
	if !h.grouped {
		n += h.match[policy.CPU].Tokens + h.match[policy.Storage].Tokens
	}
	return int64(n)
}

// priceLoads sets what a candidate pays for tokens below its GPU: what is set, or else learned.
func (c *holder) priceLoads(m *policy.Match, set float64) {
	for _, p := range policy.Lower {
		if m[p].Tokens > 0 {
			m[p].Token = float32(cmp.Or(set, c.account.LoadTime(p)))
		}
	}
}

// loads adds to the terms of a request on candidate i what it loads.
func (w *Work) loads(terms *load.Terms, i int32) {
	c := &w.cands[i]
	_, seconds := c.Match.Loads()
	if seconds == 0 {
		return
	}
	terms.Loading = int64(seconds * 1e9)
	terms.LoadsAhead = int64(c.Loading * 1e9)
	terms.LoadBound = c.Loading+seconds > 2*(c.Pending+c.Foreign)
	terms.Unhindered = c.Awaiting == 0 && c.Foreign == 0 && c.Loading == 0
	n := c.Match.Below()
	for _, p := range policy.Lower {
		if n == c.Match[p].Found() {
			terms.Loaded, terms.LoadedFrom = int64(n), p
		}
	}
}
