package sessions

import (
	"slices"
	"time"

	"warmroute/internal/decision/history"
	"warmroute/prefixhash"
)

const (
	// mostVisits bounds the requests of other routers that are in flight.
	mostVisits = 4096
	// longestVisit is how long one of them counts as in flight if its end is not told.
	longestVisit = 10 * time.Minute
	// tellEvery is how often a router tells that it holds requests, heardFor how long that counts.
	tellEvery, heardFor = time.Second, 3 * time.Second
)

// Visit is a request that another router has sent to a holder.
type Visit struct {
	From    string         // that router
	Prompt  history.Prompt // valid during the call
	Tokens  int
	Context int     // with the answer
	Paid    float64 // Work.Paid
	Cache   *history.Cache
}

// visit is one in flight.
type visit struct {
	session *Session
	from    string
	last    prefixhash.Key // of its prompt
	since   time.Time
}

// head is the first request that another router holds.
type head struct {
	at    time.Time // of its first attempt
	heard time.Time
}

// Arrived records a request of another router as if it had gone there by this one.
func (t *Table) Arrived(set *Settings, v *Visit, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(v.Prompt.Keys) == 0 {
		return
	}
	last := v.Prompt.Last()
	for _, q := range t.queues {
		q.drop(Place{Last: last, Tokens: v.Tokens})
	}
	t.leave(mostVisits, now, func(of visit) bool { return now.Sub(of.since) > longestVisit })
	if len(t.visits) >= mostVisits {
		t.leave(1, now, func(visit) bool { return true })
	}
	s, rewritten := t.continued(v.Prompt, "", true)
	s = t.goes(s, rewritten, "", v.Prompt, v.Tokens)
	s.away, s.context, s.cache = true, v.Context, v.Cache
	if d := t.desks[v.Cache]; d != nil {
		d.save(now, set.Share)
		d.saved = max(0, d.saved-v.Paid)
		d.add(s)
		d.used = now
	}
	t.visits = append(t.visits, visit{s, v.From, last, now})
	t.forget()
}

// Left records that the first request of another router whose prompt has this last key has ended.
func (t *Table) Left(from string, last prefixhash.Key, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(1, now, func(of visit) bool { return of.from == from && of.last == last })
}

// Gone records that another router is gone, or that some of what it told was lost: its requests
// count as answered, and what it holds no longer.
func (t *Table) Gone(from string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(mostVisits, now, func(of visit) bool { return of.from == from })
	for _, q := range t.queues {
		delete(q.others, from)
	}
}

// leave ends the first visits of a kind.
func (t *Table) leave(most int, now time.Time, ends func(visit) bool) {
	t.visits = slices.DeleteFunc(t.visits, func(of visit) bool {
		if most == 0 || !ends(of) {
			return false
		}
		of.session.open--
		of.session.answered = now
		most--
		return true
	})
}

// Holds records the first attempt of the first request of a model that another router holds; zero:
// it holds none.
func (t *Table) Holds(from, model string, at, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[model]
	switch {
	case q == nil: // no request of the model has come here yet
	case at.IsZero():
		delete(q.others, from)
	default:
		if q.others == nil {
			q.others = map[string]head{}
		}
		q.others[from] = head{at, now}
	}
}

// behind returns how many other routers hold a request that came before t; nil: before now.
func (q *queue) behind(t *Ticket, now time.Time) (n int) {
	at := now
	if t != nil {
		at = t.place.At
	}
	for _, h := range q.others {
		if h.at.Before(at) && now.Sub(h.heard) < heardFor {
			n++
		}
	}
	return n
}

// Tell calls holds for the models of which other routers must be told the first attempt of the first
// request that is held; zero: none is. It calls keeps for the places that are kept here and that they
// do not know yet. Holds and Keep take them.
func (t *Table) Tell(now time.Time, holds func(model string, at time.Time), keeps func(model string, p Place)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for model, q := range t.queues {
		for i := range q.kept {
			if p := &q.kept[i]; !p.told {
				p.told = true
				keeps(model, p.Place)
			}
		}
		var at time.Time
		if k := q.first(); k != nil {
			at = k.place.At
		}
		if at.Equal(q.told) && (at.IsZero() || now.Sub(q.toldAt) < tellEvery) {
			continue
		}
		q.told, q.toldAt = at, now
		holds(model, at)
	}
}
