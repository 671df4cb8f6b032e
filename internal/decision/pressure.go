package decision

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/decision/policy"
)

// parts is the number of parts of a window: an occurrence ends at most a sixtieth of
// the window early or late, and a model costs a fixed amount of memory.
const parts = 60

// A part's number and count share a word: the number of milliseconds since 1970
// fits 44 bits until the year 2527, and no model is overridden a million times
// within one part.
const (
	countBits = 20
	countMask = 1<<countBits - 1
	leastPart = time.Millisecond
)

// Pressure is the signal of all models.
type Pressure struct {
	limits func(model, base string) policy.Pressure   // the limits in force now
	models atomic.Pointer[map[string]*pressureWindow] // replaced, never changed
	mu     sync.Mutex                                 // held to replace models
}

// pressureWindow counts a model's occurrences in parts of the rolling window. A part
// is at its number modulo parts, with its number and its count in one word.
type pressureWindow struct {
	base   string        // the model's base; a model without settings has its base's
	part   time.Duration // length of a part
	counts [parts]atomic.Uint64
	before uint64 // occurrences counted in windows of another length
	total  atomic.Uint64
}

// NewPressure returns a signal without pressure. limits returns a model's limits by
// its names, as policy.Book.Of does; they may change at any time.
func NewPressure(limits func(model, base string) policy.Pressure) *Pressure {
	g := &Pressure{limits: limits}
	g.models.Store(&map[string]*pressureWindow{})
	return g
}

// partOf returns the length of the parts of a window.
func partOf(window time.Duration) time.Duration { return max(leastPart, window/parts) }

// Raise counts an occurrence. model must be a served model's name, never just a
// client's word; base is the model of which it is an adapter or alias.
func (g *Pressure) Raise(model, base string, now time.Time) {
	part := partOf(g.limits(model, base).Window)
	w := (*g.models.Load())[model]
	if w == nil || w.part != part {
		w = g.add(model, base, part)
	}
	n := w.number(now)
	place := &w.counts[n%parts]
	for {
		old := place.Load()
		next := old
		switch {
		case old>>countBits < n: // of an earlier window
			next = n<<countBits | 1
		case old&countMask < countMask:
			next++
		}
		if place.CompareAndSwap(old, next) {
			break
		}
	}
	w.total.Add(1)
}

// number returns the number of the part at a time.
func (w *pressureWindow) number(now time.Time) uint64 {
	return uint64(max(0, now.UnixNano()) / int64(w.part))
}

// add makes a model's window unless it exists. A window of another length begins
// without occurrences.
func (g *Pressure) add(model, base string, part time.Duration) *pressureWindow {
	g.mu.Lock()
	defer g.mu.Unlock()
	models := *g.models.Load()
	old := models[model]
	if old != nil && old.part == part {
		return old
	}
	w := &pressureWindow{base: base, part: part}
	if old != nil {
		w.before = old.before + old.total.Load()
	}
	models = maps.Clone(models)
	models[model] = w
	g.models.Store(&models)
	return w
}

// PressureState is one model's pressure.
type PressureState struct {
	Model  string `json:"model"`
	Recent int    `json:"recent"` // occurrences within the window, since the last reset
	Raised bool   `json:"raised"` // Recent has reached the threshold
	Total  uint64 `json:"total"`  // occurrences ever; a reset does not change it
}

// All returns the state of every model that was ever raised, by name.
func (g *Pressure) All(now time.Time) []PressureState {
	models := *g.models.Load()
	out := make([]PressureState, 0, len(models))
	for _, model := range slices.Sorted(maps.Keys(models)) {
		out = append(out, g.Of(model, now))
	}
	return out
}

// Of returns the state of one model.
func (g *Pressure) Of(model string, now time.Time) PressureState {
	w := (*g.models.Load())[model]
	if w == nil {
		return PressureState{Model: model}
	}
	limits := g.limits(model, w.base)
	s := PressureState{Model: model, Total: w.before + w.total.Load()}
	n, span := w.number(now), uint64(min(parts, limits.Window/w.part))
	for i := range w.counts {
		if c := w.counts[i].Load(); c>>countBits+span > n {
			s.Recent += int(c & countMask)
		}
	}
	s.Raised = s.Recent >= limits.Threshold
	return s
}

// Reset drops a model's recent occurrences, after a reader has acted on them.
func (g *Pressure) Reset(model string) {
	if w := (*g.models.Load())[model]; w != nil {
		for i := range w.counts {
			w.counts[i].And(^uint64(countMask))
		}
	}
}

// Forget drops a model that is no longer served.
func (g *Pressure) Forget(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	models := maps.Clone(*g.models.Load())
	delete(models, model)
	g.models.Store(&models)
}
