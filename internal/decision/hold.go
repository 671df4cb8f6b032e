package decision

import (
	"cmp"
	"math"
	"slices"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sessions"
)

// envoysKnow is how long a replica is ready before held requests go to it: Envoys know it by then.
const envoysKnow = time.Second

// WakeHeld lets the held requests that may go be decided again: it closes their tickets' Ready. It
// returns the number that are still held. While there are any, the caller calls it ten times a second
// or more: room appears as answers end, and as time passes.
func (d *Decider) WakeHeld() int {
	now, fleet := d.now(), d.views.now()
	ready := fleet.ready
	if now.Sub(fleet.since) < envoysKnow {
		ready = 0
	}
	n := d.sessions.Wake(func(model string) *policy.Sessions {
		if ready != 0 && !fleet.knows(model) {
			return new(policy.Sessions) // its requests fail as others do
		}
		return &d.book.Of(model, model).Sessions
	}, ready, now)
	d.tellHeld()
	return n
}

// Working returns the sessions at work at a holder, false: none of its requests is held.
func (d *Decider) Working(at index.Holder) (sessions.Seen, bool) {
	return d.sessions.See(d.history.Of(at), d.now())
}

// holds reports whether cold prompts of such requests are held: those with one prompt, which one
// replica computes.
func (a *Ask) holds(set *policy.Settings, w *Work) bool {
	return set.Sessions.On() && (a.Prompts != nil && a.Prompts.Len() == 1 || a.Text != nil) && !a.Cacheless && !w.apart
}

// admit lets a request go to the first of w.ranked, or to another one where the context of its
// session fits. It returns the ticket of a request that goes nowhere yet. One whose hint is withheld
// is never held: the record says that it would be. The ledger is locked.
func (d *Decider) admit(a *Ask, mv *View, set *policy.Settings, w *Work) (work *sessions.Work, held *sessions.Ticket, full bool) {
	if !a.holds(set, w) {
		return nil, nil, false
	}
	best := &mv.holders[w.at[w.ranked[0]]]
	w.mark(a, mv, best)
	w.order()
	r := &w.asking
	*r = sessions.Request{
		Model: mv.model.ID, Prompt: history.Prompt{Keys: w.marked.keys, Marks: w.marked.marks}, Tokens: w.Record.Input.Input, Answer: a.answer(best),
		Session: a.Session, Sites: r.Sites[:0], Fleet: mv.ready, Ticket: a.Ticket, MayHold: a.MayHold && !a.Must && !a.Withheld, Dry: a.Dry,
	}
	for _, i := range w.sites {
		r.Sites = append(r.Sites, w.site(a, mv, set, i))
	}
	at, work, held, full := d.sessions.Admit(&set.Sessions, r, w.LookedUp)
	if held != nil {
		return nil, held, full
	}
	if w.Record.lacks(work) && !a.Dry {
		d.unheld.Add(1)
	}
	if to := w.sites[at]; to != w.ranked[0] {
		most := len(w.ranked)
		w.ranked = slices.DeleteFunc(w.ranked, func(i int32) bool { return i == to })
		w.ranked = slices.Insert(w.ranked, 0, to)
		w.ranked = w.ranked[:most]
	}
	return work, nil, false
}

// order puts the candidates that may answer into w.sites: the ranked ones, then the others by
// cost, unless a guard passes them over.
func (w *Work) order() {
	w.sites = append(w.sites[:0], w.ranked...)
	for i := range int32(w.answer) {
		if w.scores[i].Verdict == policy.Ranked && !slices.Contains(w.ranked, i) {
			w.sites = append(w.sites, i)
		}
	}
	slices.SortStableFunc(w.sites[len(w.ranked):], func(i, j int32) int { return cmp.Compare(w.scores[i].Cost, w.scores[j].Cost) })
}

// site returns candidate i as a site for the request.
func (w *Work) site(a *Ask, mv *View, set *policy.Settings, i int32) sessions.Site {
	at, c := &mv.holders[w.at[i]], &w.cands[i]
	p := sessions.Site{Cache: at.history, Cached: c.Match.Credited(), State: at.account}
	size, learned := at.history.Capacity()
	if learned || a.marks(at) != w.marked.marks {
		return p
	}
	p.Size, p.Rate = size, at.account.Rate()
	idle := policy.Candidate{}
	idle.Speed = c.Speed
	if seconds := set.TTFT.Cost(policy.Request{Input: w.Record.Input.Input}, &idle); c.Speed > 0 && seconds > 0 {
		// The lower of both: a speed takes twenty prefills to be learned, and while a replica is taken
		// for faster than it is, sessions count as ended that pause.
		p.Rate = min(cmp.Or(p.Rate, math.Inf(1)), float64(w.Record.Input.Input)/seconds)
	}
	// What is loaded counts less what could be computed in that time.
	held, loading := c.Match.Loads()
	p.Cached = max(p.Cached, held-int(loading*p.Rate))
	return p
}
