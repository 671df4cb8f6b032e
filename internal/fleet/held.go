package fleet

import (
	"fmt"
	"slices"
	"time"

	"warmroute/index"
)

// stallAfter is the time without a step after which a replica with work is stalled: several
// times a step of the largest models. Its usage of KV blocks, which rises with each chunk of a
// long prompt, counts as a step, too.
const stallAfter = 10 * time.Second

// stallAgain is the same for a replica that was stalled and has made no step since.
const stallAgain = 2 * time.Second

// pulse is what one rank counted last, and when it last made a step or had nothing to do.
type pulse struct {
	rank         int
	steps, usage float64
	at           time.Time
}

// stall finds out whether a replica with work makes no step.
type stall struct {
	pulses []pulse
	seen   int64     // requests of this router until the last look
	sent   int64     // the same at the look before the last step was seen: a later request may have come after that step
	at     time.Time // of the last step, or when no later request of this router was in flight and not deferred
	found  bool      // it was stalled, and has made no step since
}

// since returns the time since which a replica has had work and made no step, by its loads
// and this router's requests there: as many in all, and in flight. It returns now for a replica
// that has none, or that counts no steps. Requests that vLLM defers (their grammar is compiled, their
// KV is on its way from another replica) are no work: it makes no step for them.
func (s *stall) since(now time.Time, loads []Load, sent, inFlight int64) time.Time {
	oldest, stepped, counts, deferred := now, false, false, 0.
	for i := range loads {
		l := &loads[i]
		if l.Steps == 0 {
			continue
		}
		counts = true
		at := slices.IndexFunc(s.pulses, func(p pulse) bool { return p.rank == l.Rank })
		if at < 0 {
			at = len(s.pulses)
			s.pulses = append(s.pulses, pulse{rank: l.Rank, at: now})
		}
		p := &s.pulses[at]
		moved := p.steps != l.Steps || p.usage != l.KVUsage
		if moved || l.Running+l.Waiting <= l.Deferred {
			p.at = now
		}
		p.steps, p.usage = l.Steps, l.KVUsage
		stepped, deferred = stepped || moved, deferred+l.Deferred
		oldest = earlier(oldest, p.at)
	}
	if !counts {
		return now
	}
	if stepped {
		s.sent, s.found = s.seen, false
	}
	s.seen = sent
	if stepped || float64(inFlight) <= deferred || sent <= s.sent {
		s.at = now
	}
	return earlier(oldest, s.at)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// judge sets why the replica is to be passed over, by the page that was asked for at now.
func (w *worker) judge(now time.Time) {
	var sent, inFlight int64
	if of := w.fleet.hooks.Requests; of != nil {
		ranks, _ := w.ranks()
		for _, rank := range ranks {
			all, now := of(index.Holder{Replica: w.addr, Rank: rank})
			sent, inFlight = sent+all, inFlight+now
		}
	}
	limit := stallAfter
	if w.stall.found {
		limit = stallAgain
	}
	still := now.Sub(w.stall.since(now, w.loads, sent, inFlight))
	w.held = ""
	switch {
	case w.page.asleep:
		w.held = "asleep: vllm:engine_sleep_state says that it is not awake"
	case still >= limit:
		w.stall.found = true
		w.held = fmt.Sprintf("stalled: it has requests, and has counted no step for %v or longer", limit)
	}
}
