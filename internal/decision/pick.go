package decision

import (
	"slices"
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// eventGrace is the tolerated delay between a first token and its event: a step of a large
// batch, and the network.
const eventGrace = 250 * time.Millisecond

// pick ranks the candidates and charges the first.
func (d *Decider) pick(a *Ask, mv *View, set *policy.Settings, w *Work) Decision {
	w.allow(a, mv, set)
	d.refused(a, mv, w)
	w.gather(a, mv)
	if w.answer == 0 {
		return Decision{Reason: ReasonEmptySubset}
	}
	deepest := 0
	for i := range w.cands[:w.answer] {
		deepest = max(deepest, w.cands[i].Match.Matched())
	}
	if deepest == 0 && !set.HintCold && !a.Must {
		w.record(mv)
		if a.Dry {
			d.explain(a, mv, w)
		}
		return Decision{Reason: ReasonNoMatch}
	}
	now := w.time(d)
	w.LookedUp = now
	in := policy.Request{Input: w.Record.Tokens, Ordinal: d.number(a) ^ d.o.Seed, Unreported: d.ledger.Unreported()}
	if a.Text != nil {
		in.Matchable = min(prefixhash.TextMarks.End(len(a.Text)), in.Input)
	}
	in.Reuse = w.priceSpace(a, mv, set)
	w.Record.Input = in
	if a.Dry || a.Withheld {
		return d.consider(a, mv, set, w, deepest)
	}
	res := &Reservation{d: d, mv: mv}
	w.sentinel, w.blocks = d.sentinel(a, mv)
	d.ledger.Lock()
	reason, held := d.choose(a, mv, set, w, res)
	d.ledger.Unlock()
	w.record(mv)
	if reason != "" {
		return Decision{Reason: reason, Held: held}
	}
	best := w.ranked[0]
	d.expectHere(a, mv, set, w, res)
	if res.past.priced {
		w.noteUse(mv, deepest)
	}
	if res.split != nil {
		d.expectLeg(a, mv, w, res.split)
	} else if !w.chooses(mv, res.here) {
		d.expect(a, mv, w, res.here)
	}
	if set.Disturbed(best, in, w.cands[:w.answer], w.scores) {
		d.pressure.Raise(mv.model.ID, now)
	}
	w.foresee(set, mv, best)
	w.reach(a, w.at[best])
	rank := w.rankHeader(mv, res.here)
	res.asked = rank != ""
	d.splits.decided(w.Record.Split.Reason)
	return Decision{
		Reason: w.reason(a, mv, deepest), Choice: w.Record.Choice, Rank: rank, Reservation: res,
		Reported: int(res.own.Terms().Claimed), Telling: w.guess.Differ() || res.past.telling(), Split: res.split,
		Order: res.order(a),
	}
}

// foresee records that a request goes to candidate best, and what is expected of it there. Where
// another candidate computes the prompt, that one's match saves the prefill, and best loads
// nothing: the whole rest of the prompt is moved to it.
func (w *Work) foresee(set *policy.Settings, mv *View, best int32) {
	rec, c := &w.Record, &w.cands[best]
	rec.Choice = Choice{Predicted: c.Match.Matched(), Match: c.Match, Chosen: w.destination(mv, &mv.holders[w.at[best]])}
	if w.compared.Split {
		c = &w.cands[w.compared.P]
		for _, p := range policy.Lower {
			rec.Match[p] = policy.Stretch{}
		}
	}
	rec.Saved = set.TTFT.Saved(rec.Input, c)
}

// choose reads the loads, ranks the candidates and charges res on the best, which will
// store the missing blocks, and on the replica that computes the prompt for it, if there is
// one. It returns the reason if there is no candidate, or if the request is held. The ledger is locked.
func (d *Decider) choose(a *Ask, mv *View, set *policy.Settings, w *Work, res *Reservation) (Reason, *sessions.Ticket) {
	if reason := d.rank(a, mv, set, w); reason != "" {
		return reason, nil
	}
	work, held, full := d.admit(a, mv, set, w)
	switch res.work = work; {
	case full:
		return ReasonHeldFull, held
	case held != nil:
		return ReasonHeld, held
	}
	at := w.ranked[0]
	res.here = &mv.holders[w.at[at]]
	terms := d.terms(a, mv, set, w, at)
	if w.compared.Split {
		d.chooseBoth(a, mv, set, w, res, terms)
		return "", nil
	}
	res.own.Put(res.here.account, terms)
	res.charge.Store(&res.own)
	w.noted(&res.own, at)
	return "", nil
}

// terms returns the charge of the whole request on candidate i.
func (d *Decider) terms(a *Ask, mv *View, set *policy.Settings, w *Work, i int32) load.Terms {
	in, c, at := w.Record.Input, &w.cands[i], &mv.holders[w.at[i]]
	held, _ := c.Match.Loads()
	sentinel, size := w.sentinel, mv.scopes[at.scope].BlockSize
	if size != mv.scopes[mv.usual].BlockSize {
		sentinel = 0
	}
	terms := load.Terms{
		Sent: w.LookedUp.UnixNano(), Tokens: int64(in.Input), Sentinel: sentinel,
		Model: int64(set.TTFT.Prefill(in.Input, held) * 1e9), Expected: int64(set.TTFT.Cost(in, c) * 1e9),
	}
	terms.Credited, terms.Behind = w.matched[w.at[i]].credited(), int64(max(0, in.Input-c.Match.Cached()))
	terms.Prompts, terms.Answers = int64(w.Record.Prompts), int64(a.Answers)
	if a.Prompts != nil && !w.chooses(mv, at) { // the learned place of a text is no claim
		terms.Claimed, terms.Head = d.claimed(mv, w, i, in.Input), w.Record.head
	}
	cached := c.Match.Matched() >= w.blocks*size
	timed := at.timed && !at.account.Silent()
	terms.Guessed = !at.reports()
	terms.Cached = sentinel != 0 && cached && timed
	if cached || !timed {
		terms.Sentinel = 0
	}
	w.loads(&terms, i)
	terms.DueIn(set.TTFT.Wait(in, c), at.account.Lag())
	return terms
}

// noted records what a charge on candidate i costs, and will store there.
func (w *Work) noted(c *load.Charge, i int32) {
	terms, n := c.Terms(), w.Record.Blocks
	c.Noted(float64(terms.Expected)/1e9, float64(terms.Wait)/1e9, n-n*w.cands[i].Match.Matched()/max(1, w.Record.Input.Input))
}

// claimed returns the tokens of the prompts that candidate i's events report and the
// engine can find: the full blocks before the last token. Events of an SGLang that show an
// upper bound claim nothing: a count below it is no fault of the replica.
func (d *Decider) claimed(mv *View, w *Work, i int32, input int) int64 {
	c := &mv.holders[w.at[i]]
	if !c.reports() {
		return 0
	}
	s := &mv.scopes[c.scope]
	if c.replica.SGLang != nil {
		if t, ok := d.index.Trust(c.id, s.Tenant, s.Model); ok && t.Above {
			return 0
		}
	}
	size := max(1, s.BlockSize)
	return int64(max(0, min(int(w.matched[w.at[i]].match[policy.GPU].Tokens), (input-1)/size*size)))
}

// rank reads the loads and ranks the candidates. It returns the reason if there is no
// candidate. The ledger is locked.
func (d *Decider) rank(a *Ask, mv *View, set *policy.Settings, w *Work) Reason {
	w.weigh(mv, set, w.LookedUp.UnixNano())
	in := w.Record.Input
	if w.apart {
		return d.rankApart(a, mv, set, w)
	}
	if a.Priority <= 0 && set.Saturated(in, w.cands) {
		return ReasonSaturated
	}
	for range 1 + mostLosers {
		w.ranked = set.Pick(w.ranked[:0], int(d.ranked.Load()), in, w.cands, w.scores)
		if len(w.ranked) == 0 || in.Reuse == 0 || !w.loses(a, mv, w.ranked[0]) {
			break
		}
	}
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
// without the lock, and holds for the candidates with the block size of most.
func (d *Decider) sentinel(a *Ask, mv *View) (content uint64, blocks int) {
	if a.Prompts == nil || !mv.events {
		return 0, 0
	}
	for i := range a.Prompts.Len() {
		n := 0
		content, n = a.Prompts.Sentinel(&mv.scopes[mv.usual], i)
		blocks += n
	}
	return content, blocks
}

// expectHere tells the chosen replica's history that the prompts go there. If another replica serves
// the request, Served corrects it.
func (d *Decider) expectHere(a *Ask, mv *View, set *policy.Settings, w *Work, res *Reservation) {
	if a.Cacheless || a.Prompts == nil && a.Text == nil {
		return
	}
	res.past.priced, res.past.work = a.pricesSpace(set), res.work
	res.past.of(a, mv, w, res.here, a.answer(res.here))
	res.past.begin(d, mv, res.here, time.Unix(0, res.own.Terms().Due).Add(eventGrace))
	cache, used := res.past.awaits()
	w.Record.cache, w.Record.hold, w.Record.wait = cache, used.Hold, time.Duration(res.own.Terms().Wait)
}

// gather collects the candidates the request may use. The first w.answer of them may
// answer; the others, of a request that may be split, only compute its prompt.
func (w *Work) gather(a *Ask, mv *View) {
	holders := mv.holders[:mv.answer]
	if w.apart {
		holders = mv.holders
	}
	w.at, w.passed = w.at[:0], w.passed[:0]
	for i := range holders {
		if a.Subset == nil || InSubset(holders[i].replica.Addr, a.Subset) {
			w.at = append(w.at, int32(i))
		}
	}
	w.pass(a, mv)
	w.cands = slices.Grow(w.cands[:0], len(holders))[:len(w.at)]
	for i, at := range w.at {
		w.candidate(mv, at, &w.cands[i])
	}
	if w.answer = len(w.at); w.apart {
		w.answer, _ = slices.BinarySearch(w.at, int32(mv.answer))
	}
	w.scores = slices.Grow(w.scores[:0], len(w.at))[:len(w.at)]
	clear(w.scores) // not every decision ranks them
}

// candidate fills in what holder at has of the prompts.
func (w *Work) candidate(mv *View, at int32, to *policy.Candidate) {
	c, m := &mv.holders[at], &w.matched[at]
	*to = policy.Candidate{}
	to.Hash, to.Adapter, to.CacheWeight = c.hash, c.adapter, m.weight
	m.match[policy.Shared].Tokens = max(0, int32(m.shared-m.gpu())-m.match[policy.CPU].Tokens-m.match[policy.Storage].Tokens)
	m.credit(c.account.Found())
	to.Match = m.match
	if c.account.Doubted() {
		to.Match.Doubt()
	}
}

// weigh reads the loads of the candidates. The ledger is locked.
func (w *Work) weigh(mv *View, set *policy.Settings, now int64) {
	balance := set.Policy == policy.NameBalance // the only one that uses cache weights
	w.speeds = w.speeds[:0]
	for i, at := range w.at {
		c, account := &w.cands[i], mv.holders[at].account
		c.Load = account.State(now)
		used, _ := mv.holders[at].history.Used()
		if set.TTFT.Space > 0 {
			c.Stagger = mv.stagger(at, used, c.Live)
		}
		c.Live = max(c.Live, used)
		mv.holders[at].priceLoads(&c.Match, set.TTFT.LoadToken)
		if i >= w.answer {
			c.Apart = c.InFlight // other routers do not tell which of their requests are prefill legs
		}
		if balance && c.CacheWeight == 0 {
			c.CacheWeight = account.Placed(now)
		}
		if c.Speed > 0 {
			w.speeds = append(w.speeds, c.Speed)
		}
	}
	w.level(mv, now)
	if len(w.speeds) == 0 {
		return
	}
	median := load.Median(w.speeds)
	for i, at := range w.at {
		w.cands[i].Speed = mv.holders[at].account.SpeedAmong(w.cands[i].Speed, median, now)
	}
}

// staggered is the difference between the first and the last holder's Stagger, as a share of the
// tokens of answers in a full cache.
const staggered = 0.8

// stagger returns Stagger of a holder, of whose tokens in use so many are of prompts.
func (mv *View) stagger(at int32, used, prompts float64) float64 {
	answers, full := max(0, used-prompts), mv.holders[at].history.Share(used)
	return staggered * ((float64(at)+0.5)/float64(len(mv.holders)) - 0.5) * answers * full * full * full
}

// reason names the outcome of a pick whose first is w.ranked[0].
func (w *Work) reason(a *Ask, mv *View, deepest int) Reason {
	best := &w.cands[w.ranked[0]]
	switch {
	case a.Prompts == nil && a.Text == nil:
		return ReasonAlways
	case deepest == 0 && (a.Text != nil || !mv.events):
		return ReasonLearnedCold
	case deepest == 0:
		return ReasonCold
	case best.Match.Matched() == deepest && best.Match.Learned():
		return ReasonLearned
	case best.Match.Matched() == deepest:
		return ReasonWarm
	}
	for i := range w.cands[:w.answer] {
		if w.cands[i].Match.Matched() == deepest && w.scores[i].Verdict == policy.Ranked {
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
	ranked := w.rankHeader(mv, best) != ""
	for n, i := range w.ranked[1:] {
		c := &mv.holders[w.at[i]]
		listed := slices.ContainsFunc(w.ranked[:n+1], func(i int32) bool { return mv.holders[w.at[i]].replica == c.replica })
		if listed || ranked && !best.follows(c) || !w.takes(mv, c) {
			continue
		}
		w.dest = append(append(w.dest, ','), c.replica.Addr...)
	}
	return string(w.dest)
}

func (w *Work) record(mv *View) {
	if w.apart {
		w.Record.Partners = append(w.Record.Partners, w.partners...)
	}
	n := len(w.at) + len(w.passed)
	w.Record.Candidates = slices.Grow(w.Record.Candidates[:0], n)[:n]
	for i, at := range w.at {
		to := w.Record.Candidates[i].of(&mv.holders[at])
		to.State, to.Score = w.cands[i], w.scores[i]
		to.keep(mv, w, at)
	}
	for i, at := range w.passed {
		to := w.Record.Candidates[len(w.at)+i].of(&mv.holders[at])
		w.candidate(mv, at, &to.State)
		to.Score = policy.Score{Verdict: w.verdict(&mv.holders[at])}
		to.keep(mv, w, at)
	}
}

// keep sets what tells the end of the match of holder at.
func (c *CandidateRecord) keep(mv *View, w *Work, at int32) {
	has := &w.matched[at]
	c.block, c.whole, c.next = mv.scopes[mv.holders[at].scope].BlockSize, has.whole, has.next
}

// of sets the names of a holder, and returns c.
func (c *CandidateRecord) of(h *holder) *CandidateRecord {
	c.Replica, c.Rank, c.Events = h.replica.Addr, h.rank, h.reports()
	c.Cache, c.Why, c.Routers = nil, nil, nil // of a present explanation
	return c
}
