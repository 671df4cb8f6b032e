package decision

import (
	"cmp"
	"sync"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// assumedBlock is the number of tokens of a block of a replica that reports neither its blocks
// nor their size: most replicas' own.
const assumedBlock = 16

// reports reports whether the holder's blocks are in the index: KV events or a sidecar report
// them, and the events are received.
func (c *holder) reports() bool { return c.events && !c.account.Silent() }

// marked are a request's prompts by their keys at marks.
type marked struct {
	marks *prefixhash.Marks // nil = keys are not of the request
	keys  []prefixhash.Key
	lora  prefixhash.LoRA
	sizes []int // tokens of each prompt
	ends  []int // by prompt, the end of its keys
}

// each calls yield with the keys and the tokens of each prompt.
func (m *marked) each(yield func(p history.Prompt, tokens int)) {
	from := 0
	for i, end := range m.ends {
		yield(history.Prompt{Keys: m.keys[from:end], Marks: m.marks}, m.sizes[i])
		from = end
	}
}

// marks returns the marks by which a holder's history knows the prompts.
func (a *Ask) marks(c *holder) *prefixhash.Marks {
	if a.Text != nil {
		return prefixhash.TextMarks
	}
	return c.marks
}

// answer returns the tokens that the answer is expected to have on a holder.
func (a *Ask) answer(c *holder) int {
	n := c.history.Answer()
	return min(n, cmp.Or(a.Answer, n))
}

// mark puts the prompts into w.marked by the marks of a holder: those of the text, or of the
// blocks of the holder's scope.
func (w *Work) mark(a *Ask, mv *View, c *holder) {
	m, marks := &w.marked, a.marks(c)
	lora := mv.scopes[c.scope].LoRA
	if m.marks == marks && m.lora == lora {
		return
	}
	m.lora = lora
	m.marks, m.keys, m.sizes, m.ends = marks, m.keys[:0], m.sizes[:0], m.ends[:0]
	if a.Text != nil {
		m.keys = append(m.keys, a.Text...)
		m.sizes, m.ends = append(m.sizes, a.TextTokens), append(m.ends, len(m.keys))
		return
	}
	w.chain(a, mv, c.scope)
	from := 0
	for i, end := range w.ends {
		m.keys = marks.AppendPicked(m.keys, w.keys[from:end])
		m.sizes, m.ends = append(m.sizes, a.Prompts.Tokens(i)), append(m.ends, len(m.keys))
		from = end
	}
}

// recall adds to w.matched what the histories of holders have of the prompts: what is on its way to
// those that report their blocks, and all that was sent to the others, and for a text to any. A
// store has what was sent to any of its readers. A replica without a prefix cache has nothing.
func (d *Decider) recall(a *Ask, mv *View, w *Work) {
	now, shared := w.time(d), false
	for i := range mv.holders {
		c := &mv.holders[i]
		w.mark(a, mv, c)
		if c.replica.CacheOff {
			continue
		}
		if a.Text == nil && c.reports() {
			if !a.namespaced() {
				d.comes(mv, c, &w.matched[i], w, now)
			}
			continue
		}
		has := 0
		w.marked.each(func(p history.Prompt, tokens int) { has += min(c.history.Match(p, now), tokens) })
		h := &w.matched[i]
		h.weight = c.history.Weight(now) / float64(cmp.Or(mv.scopes[c.scope].BlockSize, assumedBlock)) // as load.Account.Placed
		if has > h.gpu() {
			*h = held{shared: h.shared, weight: h.weight}
			h.match[policy.GPU] = policy.Stretch{Tokens: int32(has), Source: a.learnedFrom()}
		}
		if c.store > 0 {
			if !shared {
				w.emptyStores(mv)
				shared = true
			}
			w.stores[c.store] = max(w.stores[c.store], has)
		}
	}
	if !shared {
		return
	}
	for i := range mv.holders {
		if store := mv.holders[i].store; store > 0 {
			w.matched[i].shared = max(w.matched[i].shared, w.stores[store])
		}
	}
}

// time returns the time of the decision, from its first call on.
func (w *Work) time(d *Decider) time.Time {
	if w.now.IsZero() {
		w.now = d.now()
	}
	return w.now
}

// namespaced reports whether the usual keys of the prompts are those of prompts without a namespace.
func (a *Ask) namespaced() bool {
	of := onePrompt{of: a.Prompts}
	return a.Prompts != nil && of.Mixes().Namespace
}

// comes adds what requests in flight will leave on a holder's GPU, and its events have not told. Where
// cache groups keep a part of a prompt's past, others hit it at its end.
func (d *Decider) comes(mv *View, c *holder, h *held, w *Work, now time.Time) {
	has, whole := 0, 0
	w.marked.each(func(p history.Prompt, tokens int) {
		all, ends := c.history.Coming(p, now)
		has, whole = has+min(all, tokens), whole+min(ends, tokens)
	})
	if has > whole && has > h.gpu() && d.index.Partial(c.id, mv.scopes[c.scope]) {
		has = whole
	}
	more := int32(has - h.gpu())
	if more <= 0 {
		return
	}
	h.match[policy.Coming].Tokens = more
	// Tokens that are in an earlier place count there alone.
	for p := policy.CPU; int(p) < len(h.match) && more > 0; p++ {
		n := min(more, h.match[p].Tokens)
		h.match[p].Tokens, more = h.match[p].Tokens-n, more-n
	}
}

// marksKeys has the memory of the keys of prompts in flight.
var marksKeys = sync.Pool{New: func() any { return new([]prefixhash.Key) }}

// past is what a request leaves in the history of the holder that it is sent to.
type past struct {
	marks  *prefixhash.Marks // of the keys
	text   bool              // the keys are of a text
	keys   *[]prefixhash.Key // of all prompts, pooled; nil = no history needs them
	uses   []use
	space  [1]use // of uses, for a request with one prompt
	at     *holder
	alone  bool           // nothing but the history tells what the holder has
	lost   bool           // its events have not told of it; it may have been computed
	priced bool           // space has a price
	work   *sessions.Work // nil: the request is of no session
}

// use is a prompt in a history.
type use struct {
	end  int // of its keys
	size int // tokens
	rest int // tokens behind the last key, and of the answer
	hold history.Hold
}

// of takes the prompts as the history of c knows them, with answers of so many tokens.
func (s *past) of(a *Ask, mv *View, w *Work, c *holder, answer int) {
	if c.reports() && a.namespaced() {
		return
	}
	w.mark(a, mv, c)
	m := &w.marked
	if a.ended() { // keys are missing
		return
	}
	s.marks, s.text, s.keys = m.marks, a.Text != nil, marksKeys.Get().(*[]prefixhash.Key)
	*s.keys = append((*s.keys)[:0], m.keys...)
	s.uses = s.space[:0]
	m.each(func(p history.Prompt, tokens int) {
		rest := max(0, tokens-m.marks.End(len(p.Keys))) + answer
		s.uses = append(s.uses, use{end: m.ends[len(s.uses)], size: tokens, rest: rest})
	})
}

// prompt returns prompt i.
func (s *past) prompt(i int) history.Prompt {
	from := 0
	if i > 0 {
		from = s.uses[i-1].end
	}
	return history.Prompt{Keys: (*s.keys)[from:s.uses[i].end], Marks: s.marks}
}

// begin records that the request is sent to a holder. If its events report what it has, the prompts
// count as coming until then.
func (s *past) begin(d *Decider, mv *View, at *holder, until time.Time) {
	if s.keys == nil || !s.text && at.marks != s.marks {
		return
	}
	s.at, s.alone, s.lost = at, s.text || !at.reports(), false
	now := d.now()
	if s.alone {
		at.history.Relied(now)
	}
	if d.o.Peers != nil { // only other routers report departures
		d.invalidated.Delete(at.replica.Addr)
	}
	for i := range s.uses {
		u, p := &s.uses[i], s.prompt(i)
		u.hold = at.history.Use(p, u.rest, now)
		observed := s.observed(u, p)
		if !s.alone {
			observed.Lasts = until.Sub(now)
		}
		d.send(observed, mv, at)
	}
	s.expect(until)
}

// observed returns what other routers are told of a prompt that is sent to a holder.
func (s *past) observed(u *use, p history.Prompt) Prefix {
	observed := Prefix{Statement: Observed, Keys: p.Keys, Unit: s.marks.Unit(), Rest: u.rest}
	if s.work != nil {
		observed.Tokens, observed.Paid = u.size, time.Duration(s.work.Paid*1e9)
		s.work.Paid = 0 // once, also if another holder is tried
	}
	return observed
}

// expect records until when the prompts count as coming where events tell; the zero time: no longer.
func (s *past) expect(until time.Time) {
	if s.at == nil || s.alone {
		return
	}
	for i := range s.uses {
		s.at.history.Expect(s.prompt(i), until)
	}
}

// end records that the request has ended where it was sent.
func (s *past) end(d *Decider, mv *View, computed bool) {
	if s.at == nil {
		return
	}
	now := d.now()
	for i := range s.uses {
		u, p := &s.uses[i], s.prompt(i)
		s.at.history.End(p, u.hold, computed, now)
		if s.priced && len(p.Keys) > 0 {
			mv.reuse.ended(p.Last(), now)
		}
		keys := sentKeys(p.Keys)
		ended := Prefix{Statement: Ended, Keys: keys[max(0, len(keys)-1):]}
		if computed && !s.lost {
			ended.Rest = u.rest
		}
		d.send(ended, mv, s.at)
	}
	s.at = nil
}

// awaits returns the cache that learns from the answer to a request with one prompt, and the
// use; nil if there is none.
func (s *past) awaits() (*history.Cache, history.Used) {
	if s.at == nil || len(s.uses) != 1 {
		return nil, history.Used{}
	}
	u := &s.uses[0]
	return s.at.history, history.Used{Hold: u.hold, Marks: s.marks, Tokens: u.size}
}

// telling reports whether the answer shows something of the size of the holder's cache.
func (s *past) telling() bool {
	c, u := s.awaits()
	return c != nil && s.alone && c.Telling(u.Hold)
}

// giveBack returns the keys to their pool.
func (s *past) giveBack() {
	if s.keys != nil {
		marksKeys.Put(s.keys)
		s.keys = nil
	}
}

// arrived records a request that another router has sent to a holder.
func (d *Decider) arrived(p *Prefix, at *holder) {
	unit := cmp.Or(p.Unit, prefixhash.TextUnit)
	for _, marks := range []*prefixhash.Marks{prefixhash.TextMarks, at.marks} {
		if marks.Unit() == unit {
			d.invalidated.Delete(p.Holder.Replica)
			if marks == prefixhash.TextMarks || !at.reports() {
				at.history.Relied(d.now())
			}
			prompt := history.Prompt{Keys: p.Keys, Marks: marks}
			at.history.Arrived(p.From, prompt, p.Rest, d.now(), d.visited(p, prompt, at).End)
			if p.Lasts > 0 {
				at.history.Expect(prompt, d.now().Add(min(p.Lasts, maxReceivedTTL)))
			}
			return
		}
	}
}

// visited records a session's request that another router has sent to a holder; nil: it is of none.
func (d *Decider) visited(p *Prefix, prompt history.Prompt, at *holder) *sessions.Work {
	set := &d.book.Of(p.Model, p.Model).Sessions
	if p.Tokens == 0 || !set.On() {
		return nil
	}
	return d.sessions.Arrived(set, &sessions.Visit{
		Prompt: prompt, Tokens: p.Tokens, Context: prompt.Marks.End(prompt.Marks.Within(p.Tokens)) + p.Rest,
		Paid: p.Paid.Seconds(), Cache: at.history,
	}, d.now())
}

// staleAfter is how long a history that is not kept up stands for its cache.
const staleAfter = time.Minute

// Following records whether the KV events of a holder are received. While they are not, its
// history takes their place: an empty one, unless it did so a short time ago.
func (d *Decider) Following(h index.Holder, following bool) {
	if d.ledger.Of(h).SetSilent(!following) && !following {
		d.history.Of(h).ClearUnused(d.now().Add(-staleAfter))
	}
}

// firstSilent returns the first holder that reports nothing, nil if there is none.
func (mv *View) firstSilent() *holder {
	for i := range mv.holders {
		if c := &mv.holders[i]; !c.reports() {
			return c
		}
	}
	return nil
}
