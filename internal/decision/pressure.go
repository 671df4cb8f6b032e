package decision

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The window is a minute, in parts: an occurrence ends at most a second early or late, and a
// model costs a fixed amount of memory.
const (
	parts = 60
	part  = time.Second
)

// A part's number and count share a word: no model is overridden a million times within one
// part.
const (
	countBits = 20
	countMask = 1<<countBits - 1
)

// Pressure is the signal of all models.
type Pressure struct {
	models atomic.Pointer[map[string]*pressureWindow] // replaced, never changed
	mu     sync.Mutex                                 // held to replace models
}

// pressureWindow counts a model's occurrences in the last minute. A part is at its number
// modulo parts, with its number and its count in one word.
type pressureWindow struct {
	counts [parts]atomic.Uint64
	total  atomic.Uint64
}

// NewPressure returns a signal without pressure.
func NewPressure() *Pressure {
	g := &Pressure{}
	g.models.Store(&map[string]*pressureWindow{})
	return g
}

// Raise counts an occurrence. model must be a served model's name, never just a
// client's word.
func (g *Pressure) Raise(model string, now time.Time) {
	w := (*g.models.Load())[model]
	if w == nil {
		w = g.add(model)
	}
	n := number(now)
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
func number(now time.Time) uint64 { return uint64(max(0, now.UnixNano()) / int64(part)) }

// add makes a model's window unless it exists.
func (g *Pressure) add(model string) *pressureWindow {
	g.mu.Lock()
	defer g.mu.Unlock()
	models := *g.models.Load()
	if w := models[model]; w != nil {
		return w
	}
	w := &pressureWindow{}
	models = maps.Clone(models)
	models[model] = w
	g.models.Store(&models)
	return w
}

// PressureState is one model's pressure.
type PressureState struct {
	Model  string `json:"model"`
	Recent int    `json:"recent"` // occurrences within a minute, since the last reset
	Raised bool   `json:"raised"` // there are any
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
	s := PressureState{Model: model, Total: w.total.Load()}
	n := number(now)
	for i := range w.counts {
		if c := w.counts[i].Load(); c>>countBits+parts > n {
			s.Recent += int(c & countMask)
		}
	}
	s.Raised = s.Recent > 0
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
