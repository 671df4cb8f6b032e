package decision

import (
	"slices"
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/prefixhash"
)

const (
	// eventGrace is the tolerated delay between a first token and its event: a step of
	// a large batch, and the network.
	eventGrace = 250 * time.Millisecond
	// lateFactor and lateAdd bound the wait for a first token that events should
	// report: beyond this multiple of the expected time an event was lost.
	lateFactor = 4
	lateAdd    = 2 * time.Second
)

// pick ranks the candidates and charges the first.
func (d *Decider) pick(a *Ask, mv *View, set *policy.Settings, w *Work) Decision {
	w.gather(a, mv)
	if len(w.cands) == 0 {
		return Decision{Reason: ReasonEmptySubset}
	}
	deepest := 0
	for i := range w.cands {
		deepest = max(deepest, w.cands[i].Matched)
	}
	if deepest == 0 && !set.HintCold && !a.Must {
		return Decision{Reason: ReasonNoMatch}
	}
	now := d.now()
	w.LookedUp = now
	in := policy.Request{Input: w.Record.Tokens, Ordinal: d.number(a) ^ d.o.Seed, Unreported: d.ledger.Unreported()}
	if a.Text != nil {
		in.Matchable = min(len(a.Text)*TextBlockTokens, in.Input)
	}
	w.Record.Input = in
	if a.Dry {
		return d.consider(a, mv, set, w, deepest)
	}
	res := &Reservation{d: d, mv: mv}
	w.sentinel, w.blocks = d.sentinel(a, mv)
	d.ledger.Lock()
	reason := d.choose(a, mv, set, w, res)
	d.ledger.Unlock()
	w.record(mv)
	if reason != "" {
		return Decision{Reason: reason}
	}
	best := w.ranked[0]
	d.speculate(a, mv, w, res)
	d.expect(a, mv, w, res.here)
	if set.Disturbed(best, in, w.cands, w.scores) {
		d.pressure.Raise(mv.model.ID, mv.model.Base, now)
	}
	w.Record.Predicted = w.cands[best].Matched
	return Decision{
		Reason: w.reason(a, deepest), Destination: w.destination(mv, res.here), Rank: res.here.rankHeader(), Reservation: res,
	}
}

// expect tells the index which prompts are sent to a holder whose events lack some of
// its settings. The index learns these settings from the hits.
func (d *Decider) expect(a *Ask, mv *View, w *Work, at *holder) {
	if a.Prompts == nil || !at.events {
		return
	}
	w.chain(a, mv, at.scope)
	if a.ended() {
		return
	}
	from := 0
	for i, end := range w.ends {
		w.prompt = onePrompt{a.Prompts, i}
		d.index.Expect(at.id, mv.scopes[at.scope], w.keys[from:end], &w.prompt)
		from = end
	}
}

// choose reads the loads, ranks the candidates and charges res on the best, which will
// store the missing blocks. It returns the reason if there is no candidate. The ledger
// is locked.
func (d *Decider) choose(a *Ask, mv *View, set *policy.Settings, w *Work, res *Reservation) Reason {
	if reason := d.rank(a, mv, set, w); reason != "" {
		return reason
	}
	in := w.Record.Input
	best := &w.cands[w.ranked[0]]
	res.here = &mv.holders[w.at[w.ranked[0]]]
	account := res.here.account
	cost, wait := set.TTFT.Cost(in, best), set.TTFT.Wait(in, best)
	terms := load.Terms{
		Sent: w.LookedUp.UnixNano(), Tokens: int64(in.Input), Sentinel: w.sentinel,
		Model: int64(set.TTFT.Prefill(in.Input, best.Matched) * 1e9), Expected: int64(cost * 1e9),
	}
	terms.Wait = int64(wait * 1e9)
	terms.Due = terms.Sent + terms.Wait
	if a.Prompts != nil { // the learned place of a text is no claim
		terms.Claimed = w.claimed(mv, in.Input)
	}
	cached := best.Matched >= w.blocks*mv.scopes[res.here.scope].BlockSize
	terms.Guessed = !res.here.events
	terms.Cached = w.sentinel != 0 && cached && res.here.timed
	if cached || !res.here.timed {
		terms.Sentinel = 0
	}
	if terms.Sentinel != 0 {
		terms.Due += int64(((lateFactor-1)*wait+account.Lag())*1e9) + int64(lateAdd)
	}
	res.own.Put(account, terms)
	res.charge.Store(&res.own)
	n := w.Record.Blocks
	res.own.Noted(cost, wait, n-n*best.Matched/max(1, in.Input))
	return ""
}

// claimed returns the tokens of the prompts that the best candidate's events report and
// the engine can find: the full blocks before the last token.
func (w *Work) claimed(mv *View, input int) int64 {
	at := w.at[w.ranked[0]]
	if !mv.holders[at].events {
		return 0
	}
	size := max(1, mv.scopes[mv.holders[at].scope].BlockSize)
	return int64(max(0, min(w.matched[at].reported, (input-1)/size*size)))
}

// rank reads the loads and ranks the candidates. It returns the reason if there is no
// candidate. The ledger is locked.
func (d *Decider) rank(a *Ask, mv *View, set *policy.Settings, w *Work) Reason {
	w.weigh(mv, set, w.LookedUp.UnixNano())
	in := w.Record.Input
	if a.Priority <= 0 && set.Saturated(in, w.cands) {
		return ReasonSaturated
	}
	w.ranked = set.Pick(w.ranked[:0], int(d.ranked.Load()), in, w.cands, w.scores)
	if len(w.ranked) == 0 {
		if !a.Must {
			return ReasonAllGuarded
		}
		w.ranked = set.TTFT.Pick(w.ranked[:0], int(d.ranked.Load()), in, w.cands, w.scores)
	}
	return ""
}

// sentinel returns the content of the last block of the last prompt, whose event marks
// the first token, and the number of blocks of all prompts. It runs before the choice,
// without the lock. The content is 0 if the candidates' block sizes differ.
func (d *Decider) sentinel(a *Ask, mv *View) (content uint64, blocks int) {
	if a.Prompts == nil || !mv.events {
		return 0, 0
	}
	for i := range mv.scopes[1:] {
		if mv.scopes[i+1].BlockSize != mv.scopes[0].BlockSize {
			return 0, 0
		}
	}
	for i := range a.Prompts.Len() {
		n := 0
		content, n = a.Prompts.Sentinel(&mv.scopes[0], i)
		blocks += n
	}
	return content, blocks
}

// speculate tells the index, or the learned texts, that the prompts will be cached at
// the chosen replica. If another replica serves a text, Served corrects it.
func (d *Decider) speculate(a *Ask, mv *View, w *Work, res *Reservation) {
	c := &res.speculation
	switch {
	case a.Text != nil:
		c.text = true
		c.keys = speculated.Get().(*[]prefixhash.Key)
		*c.keys = append((*c.keys)[:0], a.Text...)
		d.observe(mv, a.Text, res.here)
	case a.Prompts != nil && !a.Cacheless && res.here.events:
		w.chain(a, mv, res.here.scope)
		keys := w.keys
		if len(w.ends) == 1 { // reported blocks need no speculation
			reported := w.cands[w.ranked[0]].Reported / max(1, mv.scopes[res.here.scope].BlockSize)
			keys = keys[min(reported, len(keys)):]
		}
		if len(keys) == 0 {
			return
		}
		c.keys = speculated.Get().(*[]prefixhash.Key)
		*c.keys = append((*c.keys)[:0], keys...)
		res.speculate(res.here, time.Unix(0, res.own.Terms().Due).Add(eventGrace))
	}
}

// gather collects the candidates the request may use.
func (w *Work) gather(a *Ask, mv *View) {
	w.at = w.at[:0]
	w.cands = slices.Grow(w.cands[:0], len(mv.holders))[:len(mv.holders)]
	for i := range mv.holders {
		c := &mv.holders[i]
		if a.Subset != nil && !inSubset(c.replica.Addr, a.Subset) {
			continue
		}
		m, to := &w.matched[i], &w.cands[len(w.at)]
		w.at = append(w.at, int32(i))
		*to = policy.Candidate{}
		to.Hash, to.Adapter, to.CacheWeight = c.hash, c.adapter, m.weight
		if to.Doubted = c.account.Doubted(); to.Doubted {
			continue // it counts as holding nothing
		}
		to.Matched, to.Reported, to.Lower, to.Full = m.gpu, m.reported, m.lower, m.full
	}
	w.cands = w.cands[:len(w.at)]
	for len(w.scores) < len(w.cands) {
		w.scores = append(w.scores, policy.Score{})
	}
	w.scores = w.scores[:len(w.cands)]
}

// weigh reads the loads of the candidates. The ledger is locked.
func (w *Work) weigh(mv *View, set *policy.Settings, now int64) {
	balance := set.Policy == policy.NameBalance // the only one that uses cache weights
	var known, times float64
	for i, at := range w.at {
		c, account := &w.cands[i], mv.holders[at].account
		s := account.State(now)
		c.InFlight, c.Awaiting, c.Pending, c.Foreign, c.Live, c.Failing, c.Speed = s.InFlight, s.Awaiting, s.Pending, s.Foreign, s.Live, s.Failing, s.Speed
		if balance && c.CacheWeight == 0 {
			c.CacheWeight = account.Placed(now)
		}
		if c.Speed > 0 {
			known, times = known+1, times+1/c.Speed
		}
	}
	if known == 0 {
		return
	}
	for i, at := range w.at {
		w.cands[i].Speed = mv.holders[at].account.SpeedAmong(w.cands[i].Speed, known/times, now)
	}
}

// reason names the outcome of a pick whose first is w.ranked[0].
func (w *Work) reason(a *Ask, deepest int) Reason {
	best := w.cands[w.ranked[0]].Matched
	switch {
	case a.Prompts == nil && a.Text == nil:
		return ReasonAlways
	case deepest == 0 && a.Text != nil:
		return ReasonLearnedCold
	case deepest == 0:
		return ReasonCold
	case best == deepest && a.Text != nil:
		return ReasonLearned
	case best == deepest:
		return ReasonWarm
	}
	for i := range w.cands {
		if w.cands[i].Matched == deepest && w.scores[i].Verdict == policy.Ranked {
			return ReasonMoved
		}
	}
	return ReasonGuarded
}

// destination returns the ranked list in the form Envoy reads: each address once.
// With a rank header set, only replicas that have that rank may follow: the
// header travels unchanged with a retry.
func (w *Work) destination(mv *View, best *holder) string {
	w.dest = append(w.dest[:0], best.replica.Addr...)
	for n, i := range w.ranked[1:] {
		c := &mv.holders[w.at[i]]
		if !best.follows(c) || w.listed(mv, w.ranked[:n+1], c) {
			continue
		}
		w.dest = append(append(w.dest, ','), c.replica.Addr...)
	}
	return string(w.dest)
}

// follows reports whether a request meant for c may be retried on next.
func (c *holder) follows(next *holder) bool {
	return (len(c.replica.Ranks) > 1) == (len(next.replica.Ranks) > 1) && slices.Contains(next.replica.Ranks, c.rank)
}

func (w *Work) listed(mv *View, ranked []int32, c *holder) bool {
	for _, i := range ranked {
		if mv.holders[w.at[i]].replica == c.replica {
			return true
		}
	}
	return false
}

func (c *holder) rankHeader() string {
	if len(c.replica.Ranks) <= 1 {
		return ""
	}
	return rankName(c.rank)
}

func (w *Work) record(mv *View) {
	for i, at := range w.at {
		c := &mv.holders[at]
		w.Record.Candidates = append(w.Record.Candidates, CandidateRecord{
			Replica: c.replica.Addr, Rank: c.rank, State: w.cands[i], Score: w.scores[i],
		})
	}
}
