package decision

import (
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// SplitRecord explains whether prefill and decode of a request were on two replicas.
type SplitRecord struct {
	Reason    SplitReason  `json:"reason"`
	Decode    string       `json:"decode,omitempty"`                          // the replica that answers
	Prefill   string       `json:"prefill,omitempty"`                         // the replica that computes the prompt, or would have been best to; "" = no replica can
	Rank      int          `json:"prefill_rank,omitempty"`                    // its data-parallel rank
	Held      int          `json:"decode_cached_tokens"`                      // tokens of the prompts expected in the cache of Decode
	Predicted int          `json:"predicted_prefill_cached_tokens,omitempty"` // tokens of the prompts expected in the cache of Prefill
	Moves     int          `json:"predicted_moved_tokens,omitempty"`          // tokens of the prompts that the cache of Decode lacks
	Moved     int          `json:"moved_tokens,omitempty"`                    // tokens that the answer of Prefill offered
	Hit       *int         `json:"prefill_cached_tokens,omitempty"`           // tokens that Prefill took from its cache, as it counted; nil = its answer does not say
	Times     SplitTimes   `json:"times,omitzero"`                            // of the split's parts
	Local     policy.Price `json:"local"`                                     // with the prefill on Decode
	Remote    policy.Price `json:"remote,omitzero"`                           // with the prefill on Prefill
}

// allow finds out whether the request may be split.
func (w *Work) allow(a *Ask, mv *View, set *policy.Settings) {
	w.apart, w.compared = false, policy.Compared{}
	switch {
	case !a.MaySplit:
		w.Record.Split.Reason = a.NoSplit
	case set.Policy != policy.NameTTFT:
		w.Record.Split.Reason = SplitOff
	case !mv.paired:
		w.Record.Split.Reason = SplitNoPartner
	default:
		w.apart = true
	}
}

// rankApart is rank for a request that may be split.
func (d *Decider) rankApart(a *Ask, mv *View, set *policy.Settings, w *Work) Reason {
	w.partners = w.partners[:0]
	for _, at := range w.at {
		w.partners = append(w.partners, mv.holders[at].partner())
	}
	in := w.Record.Input
	w.ranked, w.compared = set.PickApart(w.ranked[:0], int(d.ranked.Load()), in, policy.Crowd{Cands: w.cands, Partners: w.partners, Answer: w.answer}, w.scores)
	c, at := &w.compared, w.ranked[0]
	if a.Priority <= 0 && set.Saturated(in, w.cands[:w.answer]) && !(c.Split && c.Wait() <= set.MaxTTFT) {
		w.compared = policy.Compared{}
		return ReasonSaturated
	}
	w.Record.Split = SplitRecord{
		Reason: splitReason(c), Decode: mv.holders[w.at[at]].replica.Addr, Held: w.cands[at].Match.Matched(), Local: c.Local, Remote: c.Remote,
	}
	if c.P >= 0 {
		p := &mv.holders[w.at[c.P]]
		rec := &w.Record.Split
		rec.Prefill, rec.Rank, rec.Predicted = p.replica.Addr, p.rank, w.cands[c.P].Match.Matched()
		rec.Moves = in.Input - max(0, min(w.cands[at].Match.Matched(), in.Input-1))
	}
	return ""
}

// partner returns what the holder may do in a split.
func (c *holder) partner() policy.Partner {
	of := policy.Partner{Class: c.class, Replica: c.number, Prefills: c.replica.Role != fleet.RoleDecode}
	of.Handover, of.Token = c.account.Handover(policy.Handover, 1./policy.Bandwidth)
	return of
}

func splitReason(c *policy.Compared) SplitReason {
	switch {
	case c.P < 0:
		return SplitNoPartner
	case c.Split:
		return SplitDone
	case c.Warm:
		return SplitLocalWarm
	case c.Idle:
		return SplitLocalIdle
	}
	return SplitPrefillBusy
}

// chooseBoth charges the prompt on w.compared.P and the answer on res.here. local has the
// terms of the whole request on res.here. The ledger is locked.
func (d *Decider) chooseBoth(a *Ask, mv *View, set *policy.Settings, w *Work, res *Reservation, local load.Terms) {
	c := &w.compared
	at := &mv.holders[w.at[c.P]]
	leg := d.terms(a, mv, set, w, c.P)
	decode := local
	decode.Model = int64(set.TTFT.PrefillToken * 1e9) // D computes the last token
	decode.Expected, decode.Moved, decode.Moving = decode.Model, int64(w.Record.Split.Moves), int64(c.Remote.Handover*1e9)
	decode.Loading, decode.Loaded, decode.Credited = 0, 0, 0 // P loads what it has below its GPU, D gets all from P
	decode.DueIn(c.Wait(), res.here.account.Lag())
	s := res.splitOn(at, leg, decode, local)
	s.Wait = load.Late(float64(leg.Wait)/1e9, 0)
	s.Predicted, s.Moves = w.Record.Split.Predicted, w.Record.Split.Moves
	w.noted(&s.leg, c.P)
	w.noted(&res.own, w.ranked[0])
}

// expectLeg counts the prompt as coming where it will be computed.
func (d *Decider) expectLeg(a *Ask, mv *View, w *Work, s *Split) {
	if a.Cacheless {
		return
	}
	s.past.of(a, mv, w, s.at, 1)
	s.past.begin(d, mv, s.at, time.Unix(0, s.leg.Terms().Due).Add(eventGrace))
}

// takes reports whether a request may go to c in place of the first of the list: KV caches
// that were computed for a split can be moved there.
func (w *Work) takes(mv *View, c *holder) bool {
	if !w.compared.Split {
		return true
	}
	p := &mv.holders[w.at[w.compared.P]]
	return c.class == p.class && c.number != p.number
}

// scored returns the number of the first candidates that were not passed over.
func (rec *Record) scored() int { return rec.before(policy.Context) }

// answering returns the number of the first candidates that may answer.
func (rec *Record) answering() int { return rec.before(policy.PrefillOnly) }

// before returns the number of the candidates before the first one with verdict v or a later one.
func (rec *Record) before(v policy.Verdict) int {
	for i := range rec.Candidates {
		if rec.Candidates[i].Score.Verdict >= v {
			return i
		}
	}
	return len(rec.Candidates)
}
