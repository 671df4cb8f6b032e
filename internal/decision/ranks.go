package decision

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"warmroute/internal/fleet"
)

// refusalsKept is how many requests in a row a replica may answer with 400 that asked for a
// rank which it has served before: they are the clients' errors more often.
const refusalsKept = 2

// A refusal is forgotten after a time, which doubles: the first request may have been wrong itself.
const (
	refusalFirst = time.Minute
	refusalMost  = time.Hour
)

// rankAnswers is what a replica has answered to requests for its ranks, as long as it has these.
type rankAnswers struct {
	joined  uint64
	ranks   []int
	left    []atomic.Int32 // by rank, answers with 400 that change nothing
	refused atomic.Int64   // Unix ns at which it has refused a rank, and gets no rank header; 0: it has not
	lasts   time.Duration  // for how long that counts
}

// over reports whether a refusal counts no more.
func (a *rankAnswers) over(now time.Time) bool {
	at := a.refused.Load()
	return at != 0 && now.UnixNano()-at >= int64(a.lasts)
}

// answersOf returns the answers of a replica with several ranks, nil for others.
func (v *views) answersOf(r *fleet.Replica) *rankAnswers {
	if len(r.Ranks) <= 1 {
		return nil
	}
	for {
		known, ok := v.refusals.Load(r.Addr)
		lasts := refusalFirst
		if ok {
			if a := known.(*rankAnswers); a.joined == r.Joined && slices.Equal(a.ranks, r.Ranks) {
				if !a.over(v.clock()) {
					return a
				}
				lasts = min(2*a.lasts, refusalMost)
			}
		}
		a := &rankAnswers{joined: r.Joined, ranks: r.Ranks, left: make([]atomic.Int32, len(r.Ranks)), lasts: lasts}
		if !ok {
			v.refusals.LoadOrStore(r.Addr, a)
		} else {
			v.refusals.CompareAndSwap(r.Addr, known, a)
		}
	}
}

// RankAnswered records the status of an answer of a replica to a request with a rank header,
// 0 = not seen. A replica that answers 400 to a rank that it has not served before, or does so
// repeatedly while no page shows it, gets no rank header for a time, or until it restarts or its
// ranks change.
func (d *Decider) RankAnswered(addr string, asked, status int) {
	r := d.views.now().snap.Replica(addr)
	if r == nil || len(r.Ranks) <= 1 || r.FirstRank < 0 || status == 0 {
		return
	}
	a := d.views.answersOf(r)
	at := slices.Index(a.ranks, asked+r.FirstRank)
	switch {
	case at < 0:
	case status < http.StatusBadRequest:
		kept := int32(refusalsKept)
		if _, shown := r.LoadOf(a.ranks[at]); shown {
			kept = math.MaxInt32 // its metrics tell when it is gone
		}
		if a.left[at].Load() != kept {
			a.left[at].Store(kept)
		}
	case status == http.StatusBadRequest && a.left[at].Add(-1) < 0:
		a.refused.CompareAndSwap(0, d.now().UnixNano())
	}
}

// Unasked reports whether requests for a replica with several ranks name none: it refused one,
// or it is not known how it counts them.
func (d *Decider) Unasked(r *fleet.Replica) bool {
	a := d.views.answersOf(r)
	return a != nil && (r.FirstRank < 0 || a.refused.Load() != 0)
}

// asks returns the number that the rank has in a request's header.
func (c *holder) asks() int { return c.rank - max(0, c.replica.FirstRank) }

// rankHeader returns the header's value, "" where a request goes without: a rank whose KV events
// have ceased since the last page may be gone.
func (c *holder) rankHeader() string {
	if c.refusal == nil || c.replica.FirstRank < 0 || c.refusal.refused.Load() != 0 || c.account.Ceased() {
		return ""
	}
	return strconv.Itoa(c.asks()) // allocates nothing below 100
}

// rankHeader is holder.rankHeader, but a prompt that no replica has room for names no rank: its
// refusal would be taken for the rank's. Neither does one without room for the header, nor one whose
// retries may go astray.
func (w *Work) rankHeader(mv *View, c *holder) string {
	name := c.rankHeader()
	if name != "" && (w.bare || w.Record.Exceeds || w.astray(mv, c)) {
		return ""
	}
	return name
}

// astray reports whether the first retry of a request meant for c may carry a rank header to a
// replica that lacks the rank: nothing of the ranked list has it, and behind the list Envoy takes
// any other replica.
func (w *Work) astray(mv *View, c *holder) bool {
	for _, i := range w.ranked[1:] {
		if next := &mv.holders[w.at[i]]; next.replica != c.replica && c.follows(next) && w.takes(mv, next) {
			return false
		}
	}
	for i := range mv.answer {
		if next := &mv.holders[i]; next.replica != c.replica && !c.follows(next) {
			return true
		}
	}
	return false
}

// chooses reports whether c's replica itself chooses among several ranks.
func (w *Work) chooses(mv *View, c *holder) bool {
	return c.refusal != nil && w.rankHeader(mv, c) == ""
}

// follows reports whether a request meant for c may be retried on next, where the header
// travels unchanged. Without one, next chooses its rank itself.
func (c *holder) follows(next *holder) bool {
	if c.rankHeader() == "" {
		return true
	}
	return next.rankHeader() != "" && slices.Contains(next.replica.Ranks, c.asks()+next.replica.FirstRank)
}

// serving returns the holder of a request that asked for a rank and is served at addr: of that
// rank, or the first one. It returns nil when addr serves another model.
func (mv *View) serving(addr string, asked int) (first *holder) {
	for i := range mv.holders {
		c := &mv.holders[i]
		switch {
		case c.replica.Addr != addr:
		case c.asks() == asked:
			return c
		case first == nil:
			first = c
		}
	}
	return first
}
