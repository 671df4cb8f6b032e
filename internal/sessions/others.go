package sessions

import (
	"time"

	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
)

// tellEvery is how often a router tells that it holds requests, heardFor how long that counts.
const tellEvery, heardFor = time.Second, 3 * time.Second

// Visit is a request that another router has sent to a holder.
type Visit struct {
	Prompt  history.Prompt // valid during the call
	Tokens  int
	Context int     // with the answer
	Paid    float64 // Work.Paid
	Cache   *history.Cache
}

// head is the first request that another router holds.
type head struct {
	at    time.Time // of its first attempt
	heard time.Time
}

// Arrived records a request of another router as if it had gone there by this one.
func (t *Table) Arrived(set *policy.Sessions, v *Visit, now time.Time) *Work {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(v.Prompt.Keys) == 0 {
		return nil
	}
	for _, q := range t.queues {
		q.drop(Place{Last: v.Prompt.Last(), Tokens: v.Tokens})
	}
	s, rewritten := t.continued(v.Prompt, name{}, true)
	s = t.goes(s, rewritten, name{}, v.Prompt, v.Tokens)
	s.away, s.context, s.cache = true, v.Context, v.Cache
	if d := t.desks[v.Cache]; d != nil {
		d.save(now, set.Share)
		d.saved = max(0, d.saved-v.Paid)
		d.add(s)
		d.used = now
	}
	t.forget()
	return &Work{of: t, session: s}
}

// Gone records that another router is gone, or that some of what it told was lost: what it holds
// counts no longer.
func (t *Table) Gone(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.queues {
		delete(q.others, from)
	}
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
