package decision

import (
	"fmt"
	"slices"
	"strings"

	"warmroute/internal/decision/policy"
	"warmroute/internal/decision/why"
)

// Explain fills in Why, of the record and of its candidates: in words, and for a recorded
// decision from its numbers, which do not tell why a block was not there.
func (rec *Record) Explain() {
	if rec.Why == nil {
		rec.Why = new(why.Answer)
	}
	rec.Why.Do = rec.Reason.Do()
	for i := range rec.Candidates {
		c := &rec.Candidates[i]
		if c.Why == nil {
			c.Why = rec.endOf(c)
		}
		if c.Why != nil {
			c.Why.Left = max(0, rec.Tokens-c.Why.Cached-c.Why.Coming)
			c.Why.Say(rec.At)
		}
	}
	rec.Why.Text = rec.line()
}

// endOf returns what a candidate's numbers tell of the end of its match, nil if prompts
// were not looked up.
func (rec *Record) endOf(c *CandidateRecord) *why.End {
	if rec.Prompts == 0 {
		return nil
	}
	s, block, whole := &c.State, rec.Block, rec.Blocks*rec.Block
	if block > 0 && c.block > 0 {
		block, whole = c.block, c.whole
	}
	end := newEnd(s, block)
	switch {
	case strings.HasPrefix(rec.Source, "text"):
		end.Cause = why.ByText
	case rec.Block == 0:
		end.Cause = why.Cacheless
	case rec.Prompts > 1:
		end.Cause = why.Several
	case whole == 0:
		end.Cause = why.TooShort
	case s.Match.Doubted():
		end.Cause = why.Doubted
	case s.Match.Learned():
		end.Cause = why.NoEvents
	case s.Match.Cached() >= whole:
		end.Cause = why.Whole
	case end.Coming > 0:
		end.Cause = why.InFlight
	default:
		end.Cause = why.NotKept
	}
	return end
}

// line returns the answer's line.
func (rec *Record) line() string {
	parts := []string{rec.compared(), rec.Session.say()}
	for i := range rec.Why.Elsewhere {
		parts = append(parts, rec.Why.Elsewhere[i].Say())
	}
	if rec.Exceeds {
		parts = append(parts, "the prompt is longer than the context of every replica that may answer it")
	}
	if n := rec.Why.Untried; n > 0 {
		parts = append(parts, fmt.Sprintf("%d further adapters and models were not tried", n))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// compared compares the chosen candidate with the one that has most of the prompt.
func (rec *Record) compared() string {
	if len(rec.Candidates) == 0 {
		return rec.missing()
	}
	chosen, best := rec.winner(), 0
	for i := range rec.Candidates {
		if more := rec.Candidates[i].State.Match.Matched() - rec.Candidates[best].State.Match.Matched(); more > 0 || more == 0 && i == chosen {
			best = i
		}
	}
	has := rec.Candidates[best].State.Match.Matched()
	switch {
	case has == 0:
		return "no candidate has any of the prompt" + rec.census()
	case chosen < 0:
		return fmt.Sprintf("no replica was chosen; %s has most, %d tokens", rec.Candidates[best].name(), has)
	case chosen == best:
		return "no candidate has more than the chosen one"
	}
	b := &rec.Candidates[best]
	return fmt.Sprintf("%s has %d tokens more than the chosen one, but %s", b.name(), has-rec.Candidates[chosen].State.Match.Matched(), rec.passed(b, &rec.Candidates[chosen]))
}

// winner returns the index of the chosen candidate, -1 if there is none.
func (rec *Record) winner() int {
	chosen, win := rec.First(), -1
	for i := range rec.Candidates {
		c := &rec.Candidates[i]
		if chosen != "" && c.Replica == chosen && (win < 0 || c.Score.Verdict == policy.Ranked && c.Score.Cost < rec.Candidates[win].Score.Cost) {
			win = i // of several ranks, the cheapest
		}
	}
	return win
}

func (c *CandidateRecord) name() string {
	if c.Rank > 0 {
		return fmt.Sprintf("%s rank %d", c.Replica, c.Rank)
	}
	return c.Replica
}

// evicts returns the tokens that a candidate would evict for the request and that are expected to
// be used again.
func (rec *Record) evicts(c *policy.Candidate) int {
	return int(c.Space * float64(max(0, rec.Input.Input-c.Match.Matched())))
}

// passed says why a candidate was not chosen.
func (rec *Record) passed(c, chosen *CandidateRecord) string {
	switch {
	case c.State.Failing:
		return "it is failing"
	case c.Score.Verdict == policy.Context:
		return "its context is too short for the request"
	case c.Score.Verdict == policy.Refused:
		return "it refused this prompt lately"
	case c.Score.Verdict == policy.Held:
		return "it is asleep or stalled"
	case c.Score.Verdict != policy.Ranked:
		return "it has too many requests in flight"
	}
	if wait := c.State.Room; wait > chosen.State.Room && wait > c.State.Pending+c.State.Foreign {
		return fmt.Sprintf("answers that run leave it no room for the request for about %.3f s (cost %.4f s, the chosen one %.4f s)", wait, c.Score.Cost, chosen.Score.Cost)
	}
	if has, keeps := c.State.Match.Matched(), c.State.Match.Credited(); has-keeps >= rec.Block && rec.Block > 0 {
		return fmt.Sprintf("is expected to keep %d of its %d tokens until it computes the request (cost %.4f s, the chosen one %.4f s)", keeps, has, c.Score.Cost, chosen.Score.Cost)
	}
	if n := rec.evicts(&c.State) - rec.evicts(&chosen.State); n >= rec.Block && n > 0 {
		return fmt.Sprintf("would evict %d tokens more that are likely to be used again (cost %.4f s, the chosen one %.4f s)", n, c.Score.Cost, chosen.Score.Cost)
	}
	text := fmt.Sprintf("it costs more (%.4f s, the chosen one %.4f s)", c.Score.Cost, chosen.Score.Cost)
	if own, other := c.State.Recent, chosen.State.Recent; own > other {
		text += fmt.Sprintf(", also since it was sent more lately (%.1f s of prefill, the chosen one %.1f s)", own, other)
	}
	return text
}

// census counts the candidates' causes.
func (rec *Record) census() string {
	n := map[why.Cause]int{}
	for i := range rec.Candidates {
		if w := rec.Candidates[i].Why; w != nil {
			n[w.Cause]++
		}
	}
	var parts []string
	for _, c := range why.Causes() {
		if n[c] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, n[c]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// notReady lists the replicas that are not ready.
func (rec *Record) notReady() (out string) {
	for _, r := range rec.Why.NotReady {
		out += "; " + r.Addr + ": " + r.Why
	}
	return out
}

// missing says why there was no candidate.
func (rec *Record) missing() string {
	switch rec.Reason {
	case ReasonUnknownModel:
		text := fmt.Sprintf("no replica serves or served %q", rec.Asked)
		if len(rec.Why.Served) > 0 {
			text += "; served are " + strings.Join(rec.Why.Served, ", ")
		}
		if len(rec.Why.NotReady) > 0 {
			text += "; not known is what these serve"
		}
		return text + rec.notReady()
	case ReasonNotReady:
		return fmt.Sprintf("no replica of %q is ready", rec.Asked) + rec.notReady()
	}
	return "the decision ended before replicas were compared"
}
