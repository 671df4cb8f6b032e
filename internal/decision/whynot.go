package decision

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/decision/why"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// maxElsewhere bounds the adapters and models under which an explanation looks a prompt
// up, and the replicas and models that it names.
const maxElsewhere = 16

// maxAsked bounds the bytes of a model's name that a record keeps of a request.
const maxAsked = 128

// explainEnds records what ends the match of each candidate, for present decisions.
func (d *Decider) explainEnds(a *Ask, mv *View, w *Work) {
	trails := map[index.Scope]*index.Trail{} // by block size and adapter
	for i, at := range slices.Concat(w.at, w.passed) {
		h, c := &mv.holders[at], &w.Record.Candidates[i]
		scope := mv.scopes[h.scope]
		if c.Cache != nil { // full attention decides, whichever group it is
			scope.Group, scope.BlockSize = c.Cache.Group, c.Cache.Block
		}
		s := &c.State
		end := newEnd(s, scope.BlockSize)
		c.Why = end
		switch {
		case a.Prompts == nil && a.Text == nil:
			c.Why = nil
		case a.Text != nil:
			end.Cause = why.ByText
		case a.Cacheless:
			end.Cause = why.Cacheless
		case a.Prompts.Len() != 1:
			end.Cause = why.Several
		default:
			of := index.Scope{LoRA: scope.LoRA, BlockSize: scope.BlockSize}
			t := trails[of]
			if t == nil {
				t = &index.Trail{Keys: a.Prompts.AppendKeys(nil, &scope, 0)}
				trails[of] = t
			}
			if a.ended() { // keys are missing
				c.Why = nil
				return
			}
			d.explainEnd(h, c, scope, t)
		}
	}
}

// newEnd returns the end of a candidate's match without its cause.
func newEnd(s *policy.Candidate, block int) *why.End {
	return &why.End{Cached: s.Match.Cached(), Coming: s.Match.Matched() - s.Match.Cached(), Lower: s.Match.Below(), Block: block}
}

// explainEnd finds the cause for one candidate and one prompt, whose keys in the scope are
// those of t.
func (d *Decider) explainEnd(h *holder, c *CandidateRecord, scope index.Scope, t *index.Trail) {
	end, e := c.Why, d.index.Why(h.id, scope, t)
	kind := cutBy(c.Cache)
	if kind == index.FullAttention {
		end.Draft = c.Cache.FullOnly - c.Cache.Hit
	}
	switch {
	case len(t.Keys) == 0:
		end.Cause = why.TooShort
	case h.replica.CacheOff:
		end.Cause = why.CacheOff
	case !h.reports():
		end.Cause = why.NoEvents
	case c.State.Match.Doubted():
		end.Cause = why.Doubted
	case e.Hidden:
		end.Cause = why.NoGroup
	case end.Cached+end.Draft >= len(t.Keys)*scope.BlockSize:
		end.Cause = why.Whole
	case end.Coming > 0:
		end.Cause = why.InFlight
	case kind != "" && end.Draft == 0:
		end.Cause, end.Kind, end.Full = why.Group, kind, c.Cache.FullOnly
	default:
		absent(end, &e)
	}
}

// absent finds the cause by what the index knows of the block behind a match.
func absent(end *why.End, e *index.Ending) {
	switch {
	case !e.Removed.IsZero():
		end.Cause, end.At = why.Evicted, e.Removed
	case e.Refused:
		end.Cause = why.Refused
	case e.Branches:
		end.Cause = why.Diverges
	case e.Dropped:
		end.Cause = why.IndexFull
	case e.Loss == index.LossCleared:
		end.Cause, end.At = why.Cleared, e.Since
	case e.Loss == index.LossRestarted:
		end.Cause, end.At = why.Restarted, e.Since
	case e.Loss != index.LossNone:
		end.Cause, end.At = why.EventsLost, e.Since
	default:
		end.Cause, end.Since, end.Known = why.NeverStored, e.Since, e.Remembered
	}
}

// ExplainRecord explains a recorded decision: as Record.Explain does, and by the keys of the first
// blocks that its candidates lacked. What happened after the decision is no cause of it.
func (d *Decider) ExplainRecord(rec *Record) {
	if mv, _ := d.Find(rec.Model, rec.Tenant); mv != nil {
		for i := range rec.Candidates {
			c := &rec.Candidates[i]
			h := mv.find(c.Replica, c.Rank)
			if h == nil || c.next == 0 || c.Why != nil {
				continue
			}
			end := rec.endOf(c)
			if end == nil || end.Cause != why.NotKept {
				continue
			}
			e := d.index.Why(h.id, mv.scopes[h.scope], &index.Trail{Keys: []prefixhash.Key{c.next}, Until: rec.At})
			switch c.Why = end; {
			case h.replica.CacheOff:
				end.Cause = why.CacheOff
			case !c.Events:
				end.Cause = why.NoEvents
			case e.Since.After(rec.At): // what was known then is lost
			case e.Hidden:
				end.Cause = why.NoGroup
			default:
				absent(end, &e)
			}
		}
	}
	rec.Explain()
}

// cutBy returns the kind of the cache group that ends a hit before the blocks of full
// attention do, "" if none does. It is full attention itself if a draft model drops blocks.
func cutBy(g *index.Groups) string {
	if g == nil || g.FullOnly <= g.Hit {
		return ""
	}
	for i := range g.Specs {
		if s := &g.Specs[i]; s.Cuts && s.Alone < g.FullOnly {
			return s.Kind
		}
	}
	return ""
}

// elsewhere finds where more of the prompts is cached than at any candidate: without the
// salt, under other adapters and models with equal token ids, and outside the subset. It
// looks at the replicas of the request's tenant and the shared ones only.
func (d *Decider) elsewhere(a *Ask, mv *View, w *Work) (found []why.Elsewhere, untried int) {
	if a.Prompts == nil || a.Cacheless {
		return nil, 0
	}
	most := 0
	for i := range w.cands {
		most = max(most, w.cands[i].Match.Matched())
	}
	add := func(p why.Place, model string, has int) {
		if has > most {
			found = append(found, why.Elsewhere{Place: p, Model: model, More: has - most})
		}
	}
	if a.Subset != nil {
		add(why.BeyondSubset, "", w.longestPrompt())
	}
	if a.Rekey == nil {
		return found, 0
	}
	if p := a.Rekey(mv, false); p != nil {
		add(why.Unsalted, "", d.longest(a, mv, p))
	}
	models := d.related(mv, a.Tenant)
	for i, m := range models {
		if i == maxElsewhere || a.ended() {
			untried = len(models) - i
			break
		}
		other := d.views.of(m.ID, a.Tenant)
		if other == nil { // it left just now
			continue
		}
		place := why.OtherModel
		if m.Base == mv.model.Base {
			place = why.OtherAdapter
		}
		if p := a.Rekey(other, true); p != nil {
			add(place, m.ID, d.longest(a, other, p))
		}
	}
	slices.SortStableFunc(found, func(a, b why.Elsewhere) int { return cmp.Compare(b.More, a.More) })
	return found, untried
}

// longest returns the most tokens of prompts that one holder of a view has.
func (d *Decider) longest(a *Ask, mv *View, p Prompts) int {
	b, w := Ask{Model: a.Model, Tenant: a.Tenant, Prompts: p}, new(Work)
	w.clear(len(mv.holders))
	d.match(&b, mv, w)
	return w.longestPrompt()
}

// related returns the models that a tenant may use whose prompts have equal token ids: the
// adapters of the same base model and the base itself, and models loaded from the same
// files. Of the names of one model it returns the first.
func (d *Decider) related(mv *View, tenant string) (all []fleet.Model) {
	own := &mv.model
	for _, r := range d.views.now().snap.Replicas {
		if !r.Ready || r.Tenant != "" && r.Tenant != tenant {
			continue
		}
		for i := range r.Models {
			m := &r.Models[i]
			same := m.Base == own.Base && m.LoRA.Same(own.LoRA)
			known := slices.ContainsFunc(all, func(o fleet.Model) bool { return o.Base == m.Base && o.LoRA.Same(m.LoRA) })
			if !same && !known && (m.Base == own.Base || m.Root != "" && m.Root == own.Root) && len(all) < 8*maxElsewhere {
				all = append(all, *m)
			}
		}
	}
	return all
}

// Missing says why no replica can serve a model that a tenant asks for: with the reason
// ReasonUnknownModel, which models there are, and which replicas have not said yet; with
// ReasonNotReady, why the replicas are not ready.
func (d *Decider) Missing(model, tenant string, reason Reason) *why.Answer {
	var out why.Answer
	for _, r := range d.views.now().snap.Replicas {
		if r.Tenant != "" && r.Tenant != tenant {
			continue
		}
		switch reason {
		case ReasonUnknownModel:
			if len(out.NotReady) < maxElsewhere && len(r.Models) == 0 {
				out.NotReady = append(out.NotReady, why.Replica{Addr: r.Addr, Why: r.Why})
			}
			for i := range r.Models {
				if id := r.Models[i].ID; len(out.Served) < maxElsewhere && r.Ready && !slices.Contains(out.Served, id) {
					out.Served = append(out.Served, id)
				}
			}
		case ReasonNotReady:
			if len(out.NotReady) < maxElsewhere && !r.Ready && (r.Model(model) != nil || len(r.Models) == 0) {
				out.NotReady = append(out.NotReady, why.Replica{Addr: r.Addr, Why: r.Why})
			}
		}
	}
	slices.Sort(out.Served)
	return &out
}

// Asked returns a model's name from a request in a form that a record may keep: a bounded
// copy of its printable characters.
func Asked(model string) string {
	cut := strings.ToValidUTF8(model[:min(len(model), maxAsked)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.Clone(cut))
}
