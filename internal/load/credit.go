package load

import (
	"sync/atomic"

	"warmroute/internal/fleet"
	"warmroute/internal/learned"
)

const (
	// creditLeast is the number of credited tokens from which they are compared with a page.
	creditLeast = 4096
	// creditNone is the share of credited tokens found below which none is credited.
	creditNone = 0.2
)

// credit compares the tokens that a replica was expected to load, from places where no event
// tells when blocks are gone, with those that its connector has found.
type credit struct {
	credited atomic.Int64  // tokens of requests that were answered
	behind   atomic.Int64  // tokens of these requests that are not on the GPU: the connector looks up each of them
	found    learned.Ratio // of the credited tokens

	// Ledger.Lock guards the fields below, which are of the last page that was compared.
	page      fleet.Connector
	sum, rest int64 // credited and behind
}

// Found returns the share of the tokens credited without events of removals that the replica
// has found lately: 1 until it shows less, 0 if it hardly finds any.
func (k *credit) Found() float64 {
	switch f := k.found.Of(1, loadPrior); {
	case f >= 1:
		return 1
	case f < creditNone:
		return 0
	default:
		return f
	}
}

// answered counts the tokens of a request that the engine has looked up.
func (k *credit) answered(t *Terms) {
	k.credited.Add(t.Credited)
	k.behind.Add(t.Behind)
}

// scrape learns from the replica's counters. Other requests than this router's have their part
// of the tokens found. Tokens that other replicas have computed are found, too: a page with such
// tokens teaches nothing.
func (k *credit) scrape(page fleet.Connector, first bool) {
	sum, rest := k.credited.Load(), k.behind.Load()
	asked, found := page.AskedTokens-k.page.AskedTokens, page.LoadedTokens-k.page.LoadedTokens
	if !first && asked >= 0 && found >= 0 && page.MoveSeconds == k.page.MoveSeconds {
		if sum-k.sum < creditLeast {
			return // until more is credited
		}
		if asked > 0 {
			ours := min(1, float64(rest-k.rest)/asked)
			credited := float64(sum - k.sum)
			k.found.Add(found*ours, credited, credited/loadWindow)
		}
	}
	k.page, k.sum, k.rest = page, sum, rest
}
