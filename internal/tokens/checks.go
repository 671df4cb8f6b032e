package tokens

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// checksAtOnce bounds the models that are compared with replicas at once.
	checksAtOnce = 8
	// comparersAtOnce bounds the samples that are compared at once.
	comparersAtOnce = 4
	// mostLost is how many answers may be late before a round ends.
	mostLost = 2
	// mostPause bounds the pause after a round without any answer. The pause is
	// CheckEvery at first and doubles.
	mostPause = 5 * time.Minute
)

// Busy is a model with work under way off the request path.
type Busy struct {
	Model string
	Phase string // the work, as a sentence's end
	Since time.Time
}

// The phases of a check.
const (
	phaseWaiting   = "waits for other models to be compared"
	phaseCompiling = "its chat template is being compiled"
	phaseReading   = "its files are being read a second way"
	phaseComparing = "its token ids are being compared with a replica's"
)

// Run verifies models when they are loaded and when their servers' version
// changes, and compares samples, until ctx ends. A model or a replica that takes long
// delays no other model.
func (l *Local) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for range comparersAtOnce {
		running.Go(func() { l.compareAll(ctx) })
	}
	tick := time.Tick(l.o.CheckEvery)
	for {
		l.start(ctx, &running, true)
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-l.wake:
		}
	}
}

// compareAll compares samples until ctx ends.
func (l *Local) compareAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-l.samples:
			l.compare(ctx, s)
		}
	}
}

// CheckAll verifies every feature that is new or could not be verified yet, due or
// not.
func (l *Local) CheckAll(ctx context.Context) {
	var running sync.WaitGroup
	l.start(ctx, &running, false)
	running.Wait()
}

// start begins a check of each model that is not being checked.
func (l *Local) start(ctx context.Context, running *sync.WaitGroup, due bool) {
	l.models.Range(func(_, v any) bool {
		m := v.(*localModel)
		if !m.mu.TryLock() {
			return true
		}
		m.busy(phaseWaiting, l.o.Now())
		running.Go(func() {
			defer m.mu.Unlock()
			defer m.phase.Store(nil)
			select {
			case l.checks <- struct{}{}:
				defer func() { <-l.checks }()
				l.check(ctx, m, due)
			case <-ctx.Done():
			}
		})
		return true
	})
}

// busy records the phase of the check under way.
func (m *localModel) busy(phase string, now time.Time) {
	m.phase.Store(&Busy{m.name, phase, now})
}

// postpone sets the time of the next round after one without an answer.
func (m *localModel) postpone(now time.Time, every time.Duration) {
	m.next = now.Add(min(mostPause, every<<min(m.lost, 10)))
	m.lost++
}

// Busy lists the models that are being checked, by name.
func (l *Local) Busy() []Busy {
	var list []Busy
	l.models.Range(func(_, v any) bool {
		if b := v.(*localModel).phase.Load(); b != nil {
			list = append(list, *b)
		}
		return true
	})
	slices.SortFunc(list, func(a, b Busy) int { return cmp.Compare(a.Model, b.Model) })
	return list
}
