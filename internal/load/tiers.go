package load

import (
	"cmp"
	"sync/atomic"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/learned"
)

// tierPrior are the seconds to load a token until they are learned: 128 KiB, as of an 8B
// model with grouped-query attention, at 25 GB/s from CPU memory, 5 GB/s from an NVMe disk,
// and 10 GB/s over a network.
var tierPrior = [policy.Cut]float64{policy.CPU: 5.2e-6, policy.Storage: 26e-6, policy.Shared: 13e-6}

const (
	// loadPrior is the number of loaded tokens as which a prior counts. A few long prompts
	// outweigh it.
	loadPrior = 30_000
	// loadWindow is the number of the last loaded tokens that decide.
	loadWindow = 200_000
	// loadJump bounds the distance of a single first-token time from the expected one.
	loadJump = 3
	// loadLeast is the number of tokens from which a first-token time shows a load: fewer
	// take no longer than an engine step.
	loadLeast = 1024
	// loadBound is the expected wait for loads, in nanoseconds, from which the first-token
	// time of a busy replica shows them: several engine steps.
	loadBound = 0.5e9
)

// below is what is learned of the places below the GPU.
type below struct {
	loads  // how long blocks take to be loaded
	credit // how many of them are there, where events do not tell
}

// loads learns from first-token times how fast one replica loads blocks, and follows its queue of
// loads, which it takes one after the other. Ledger.Lock guards until.
type loads struct {
	until int64                     // Unix ns at which the loads of all charges are done
	times [policy.Cut]learned.Ratio // s for a token
}

// LoadTime returns the learned seconds to load a token from a tier: those of the fleet until
// the replica's own clearly differ. By small differences, all requests would go to the
// replica that seems fastest.
func (a *Account) LoadTime(t policy.Place) float64 {
	fleet := cmp.Or(a.ledger.loads[t].Load(), tierPrior[t])
	if own := a.loads.times[t].Of(fleet, loadPrior); own > fleet*alike || own < fleet/alike {
		return own
	}
	return fleet
}

// learnLoad records a load of the replica, and what the fleet shows with it: the median of its
// replicas and of tierPrior, so that no replica alone sets the time of the others.
func (a *Account) learnLoad(t policy.Place, seconds, tokens float64) {
	a.loads.times[t].Add(seconds, tokens, tokens/loadWindow)
	all := []float64{tierPrior[t]}
	for _, of := range a.ledger.All() {
		if r := &of.loads.times[t]; r.Whole() > 0 {
			all = append(all, r.Of(tierPrior[t], loadPrior))
		}
	}
	a.ledger.loads[t].Store(Median(all))
}

// LoadedTokens returns how many loaded tokens the learned time of a tier rests on, at most
// loadWindow.
func (l *loads) LoadedTokens(t policy.Place) float64 { return l.times[t].Whole() }

// loading returns the seconds until the loads of all charges are done. Ledger.Lock is held.
func (l *loads) loading(now int64) float64 { return float64(max(0, l.until-now)) / 1e9 }

// observeLoad learns from the first token, at now, of a request that loaded from one tier. It
// teaches if the replica had nothing else to do, or if loads alone made the request wait, for
// long: a replica that never rests would not be found to be slower than expected.
func (a *Account) observeLoad(c *Charge, now int64) {
	t := &c.terms
	waits := t.LoadsAhead + t.Loading
	alone := t.Unhindered && a.sent.Load() == c.order
	if t.Loaded < loadLeast || !alone && !(t.LoadBound && waits >= loadBound) {
		return
	}
	began := float64(now-t.Sent-t.Expected)/1e9 - stepTime*t.guess()
	took := learned.Near(began*1e9/float64(waits), 1, loadJump) * float64(t.Loading) / 1e9
	a.learnLoad(t.LoadedFrom, took, float64(t.Loaded))
}

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
	if f := min(1, k.found.Of(1, loadPrior)); f >= creditNone {
		return f
	}
	return 0
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
