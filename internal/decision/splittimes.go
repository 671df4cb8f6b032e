package decision

import (
	"cmp"
	"time"
)

// SplitTimes are the times of the parts of a split request, in seconds; 0 = not known. The
// two replicas' events and answers show them as the router receives them.
type SplitTimes struct {
	Answered float64 `json:"prefill_answered_seconds,omitempty"` // from the decision until the answer of Prefill, or until the router gave it up; its queue is part of it
	Computed float64 `json:"prefill_computed_seconds,omitempty"` // from the decision until the event of the prompt's last block on Prefill
	Moved    float64 `json:"moved_seconds,omitempty"`            // from the end of the prefill until the event of the moved blocks on Decode
}

// HitOf records how many tokens of the prompt the prefill replica took from its cache, as it
// counted them itself.
func (s *Split) HitOf(tokens int) { s.hit.Store(int64(tokens) + 1) }

// Hit returns what HitOf has recorded, if anything.
func (s *Split) Hit() (tokens int, ok bool) {
	n := int(s.hit.Load()) - 1
	return n, n >= 0
}

// Reported returns the tokens of the prompt that Prefill's events reported as cached.
func (s *Split) Reported() int { return int(s.leg.Terms().Claimed) }

// Report records in rec how the split ended, and its times so far.
func (s *Split) Report(rec *Record) {
	of := &rec.Split
	of.Reason, of.Moved, of.Times = s.Reason(), int(s.moved.Load()), s.times()
	if hit, ok := s.Hit(); ok {
		of.Hit = &hit
	}
}

func (s *Split) times() (t SplitTimes) {
	begun, answered, computed, arrived := time.Unix(0, s.leg.Terms().Sent), time.Time{}, s.leg.ReportedFirst(), s.res.own.ReportedArrival()
	if ns := s.asked.Load(); ns != 0 {
		answered = time.Unix(0, ns)
	}
	since := func(from, to time.Time) float64 {
		if from.IsZero() || to.IsZero() {
			return 0
		}
		return max(0, to.Sub(from).Seconds())
	}
	t.Answered, t.Computed = since(begun, answered), since(begun, computed)
	if computed.IsZero() {
		computed = answered
	}
	t.Moved = since(computed, arrived)
	return t
}

// observe counts the times of a split that has ended.
func (s *Split) observe() {
	if s.Reason() != SplitDone {
		return
	}
	t := s.times()
	for phase, seconds := range map[string]float64{phasePrefill: cmp.Or(t.Computed, t.Answered), phaseMove: t.Moved} {
		if seconds > 0 {
			s.res.d.splits.phases.WithLabelValues(phase).Observe(seconds)
		}
	}
}

// The phases of a split that are counted: the closed set of a metric's label.
const (
	phasePrefill = "prefill"
	phaseMove    = "move"
)
