package decision

import "warmroute/internal/decision/policy"

// able orders the replicas by what they can do for a request. Only the best ones that may
// answer it are its candidates, so that no replica is passed over that is as good as the rest.
type able uint8

const (
	ableWhole  able = iota // it is ready, and has room for the prompt and the answer
	ablePrompt             // for the prompt and less of the answer
	ableReady              // for neither
	ableHeld               // it is asleep or stalled
)

// able returns what a holder can do. One that only computes the prompt needs room for no answer.
func (a *Ask) able(c *holder, answers bool) able {
	room := c.context - a.Least
	switch {
	case !c.replica.Ready:
		return ableHeld
	case c.context == 0 || a.Least == 0 || room >= max(1, a.Answer) || room > 0 && !answers:
		return ableWhole
	case room > 0:
		return ablePrompt
	}
	return ableReady
}

// pass takes the holders out of w.at that can do less for the request than others that may
// answer it, and puts them into w.passed.
func (w *Work) pass(a *Ask, mv *View) {
	best := ableHeld
	for _, at := range w.at {
		if int(at) < mv.answer {
			best = min(best, a.able(&mv.holders[at], true))
		}
	}
	w.Record.Exceeds = best == ableReady
	if best == ableHeld {
		return
	}
	kept := w.at[:0]
	for _, at := range w.at {
		if a.able(&mv.holders[at], int(at) < mv.answer) > best {
			w.passed = append(w.passed, at)
		} else {
			kept = append(kept, at)
		}
	}
	w.at = kept
}

// verdict says why a holder was passed over.
func (c *holder) verdict() policy.Verdict {
	if !c.replica.Ready {
		return policy.Held
	}
	return policy.Context
}
