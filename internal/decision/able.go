package decision

import (
	"slices"

	"warmroute/internal/decision/policy"
)

// able orders the replicas by what they can do for a request. Only the best ones that may
// answer it are its candidates, so that no replica is passed over that is as good as the rest.
type able uint8

const (
	ableWhole   able = iota // it is ready, and has room for the prompt and the answer
	ablePrompt              // for the prompt and less of the answer
	ableRefused             // it refused this prompt lately
	ableReady               // it has room for neither
	ableHeld                // it is asleep or stalled
)

// able returns what a holder can do. One that only computes the prompt needs room for no answer.
func (w *Work) able(a *Ask, c *holder, answers bool) able {
	room, whole := c.context-a.Least, c.context == 0 || a.Least == 0
	switch {
	case !c.replica.Ready:
		return ableHeld
	case !whole && room <= 0:
		return ableReady
	case slices.Contains(w.refusers, c.replica.Addr):
		return ableRefused
	case whole || room >= a.Answer || !answers:
		return ableWhole
	}
	return ablePrompt
}

// pass takes the holders out of w.at that can do less for the request than others that may
// answer it, and puts them into w.passed.
func (w *Work) pass(a *Ask, mv *View) {
	best := ableHeld
	for _, at := range w.at {
		if int(at) < mv.answer {
			best = min(best, w.able(a, &mv.holders[at], true))
		}
	}
	w.Record.Exceeds = best == ableReady
	if best == ableHeld {
		return
	}
	kept := w.at[:0]
	for _, at := range w.at {
		if w.able(a, &mv.holders[at], int(at) < mv.answer) > best {
			w.passed = append(w.passed, at)
		} else {
			kept = append(kept, at)
		}
	}
	w.at = kept
}

// verdict says why a holder was passed over.
func (w *Work) verdict(c *holder) policy.Verdict {
	switch {
	case !c.replica.Ready:
		return policy.Held
	case slices.Contains(w.refusers, c.replica.Addr):
		return policy.Refused
	}
	return policy.Context
}
