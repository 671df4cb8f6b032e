package load

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// belief is how much of a holder's events is believed, and what answers say about them.
type belief struct {
	claims  claims
	shares  atomic.Bool  // events have told of a store that it shares
	doubted atomic.Bool  // claims are disbelieved
	silent  atomic.Bool  // events are not received
	ceased  atomic.Int64 // Unix ns since which they are not, 0: a later page shows the rank
	missed  atomic.Int64 // Unix ns of the last answer that found less than events had reported
	unheard atomic.Int64 // requests since the last one whose answer was read
}

// SharesStore reports whether the replica's events have told of blocks in a store that other
// replicas may read too.
func (b *belief) SharesStore() bool { return b.shares.Load() }

// Doubted reports whether the holder counts as holding nothing.
func (b *belief) Doubted() bool { return b.doubted.Load() }

// Silent reports whether the holder's KV events fail to arrive.
func (b *belief) Silent() bool { return b.silent.Load() }

// Ceased reports whether the holder's KV events do not arrive, and no page since shows its rank.
func (b *belief) Ceased() bool { return b.ceased.Load() != 0 && b.Silent() }

// MissedSince reports whether an answer after t found less than events had reported.
func (b *belief) MissedSince(t time.Time) bool { return b.missed.Load() > t.UnixNano() }

// Unheard counts a request, and returns the number since Heard.
func (b *belief) Unheard() int64 { return b.unheard.Add(1) }

// Heard records that the answer to a request was read.
func (b *belief) Heard() { b.unheard.Store(0) }

// claims are the tokens of sent prompts that a holder's events reported to be
// cached, whether decisions believed it or not. They are compared with the tokens
// that the replica says it found. All counts are of prompts with reported tokens.
type claims struct {
	open     atomic.Int64 // tokens of requests in flight
	tokens   atomic.Int64 // tokens of requests that were answered
	requests atomic.Int64 // their number
	heads    atomic.Int64 // of these, those with another first block than the claimHeads before them

	mu     sync.Mutex // guards recent and next, for a few steps
	recent [claimHeads]uint64
	next   int
}

// claimHeads is the number of different first blocks that are remembered.
const claimHeads = 16

// head counts a first block, unless it is one of the last.
func (c *claims) head(key uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.recent[:], key) {
		c.recent[c.next], c.next = key, (c.next+1)%claimHeads
		c.heads.Add(1)
	}
}

// Claims are the claims of a replica, all ranks together.
type Claims struct {
	Requests, Heads, Tokens, Open int64
}

// Claims returns the claims of every replica.
func (l *Ledger) Claims() map[string]Claims {
	out := map[string]Claims{}
	for h, a := range l.All() {
		c := out[h.Replica]
		c.Open += a.claims.open.Load() // first: a request that ends meanwhile counts twice, not never
		c.Tokens += a.claims.tokens.Load()
		c.Requests += a.claims.requests.Load()
		c.Heads += a.claims.heads.Load()
		out[h.Replica] = c
	}
	return out
}

// Doubt records for every replica whether its claims are disbelieved.
func (l *Ledger) Doubt(disbelieved func(replica string) bool) {
	for h, a := range l.All() {
		a.doubted.Store(disbelieved(h.Replica))
	}
}

// Settle ends the charge's claim, once, after Release. A claim counts if the engine
// has looked the prompt up: a request that failed, or was cancelled while it waited,
// shows nothing.
func (c *Charge) Settle(looked bool) {
	if c.settled.Swap(true) {
		return
	}
	if looked {
		c.account.credit.answered(&c.terms)
	}
	n := c.terms.Claimed
	if n == 0 {
		return
	}
	of := &c.account.claims
	if looked {
		of.tokens.Add(n)
		of.requests.Add(1)
		of.head(c.terms.Head)
	}
	of.open.Add(-n)
}

// Looked reports whether the engine must have looked the prompt up: the response's
// status or the first token was seen, or the expected time of the first token has
// passed.
func (c *Charge) Looked(status int, came bool) bool {
	return status > 0 || came || c.account.ledger.now().UnixNano()-c.terms.Sent >= c.terms.Wait
}
