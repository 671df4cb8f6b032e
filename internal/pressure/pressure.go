// Package pressure counts, per model, how often a load guard sent a request
// away from the replica that had its prefix: a sign that the model wants more
// replicas, made for an autoscaler.
//
// The invariant: reading drains nothing. An occurrence counts for Window after
// it happened, or until its model is Reset by whoever has acted on it.
//
// All methods are safe for concurrent use. The caller passes the clock's time,
// which may go backwards a little. Nothing is kept of models that were never
// raised.
package pressure

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Options configures a Gauge. Zero values are the defaults.
type Options struct {
	Window    time.Duration // how long an occurrence counts; default 1 min
	Threshold int           // occurrences from which on a model is under pressure; default 1
}

// slices a window is divided into: an occurrence ends at most a sixtieth of the
// window early or late, and a model costs a fixed amount of memory however many
// there are.
const parts = 60

// Gauge is the signal of all models.
type Gauge struct {
	o      Options
	part   time.Duration
	mu     sync.Mutex
	models map[string]*window
}

// window counts a model's occurrences in parts of the rolling window.
type window struct {
	counts [parts]int
	newest int64 // number of the newest part, in parts since the epoch
	total  uint64
}

// New returns a gauge without pressure.
func New(o Options) *Gauge {
	if o.Window <= 0 {
		o.Window = time.Minute
	}
	if o.Threshold <= 0 {
		o.Threshold = 1
	}
	return &Gauge{o: o, part: max(1, o.Window/parts), models: map[string]*window{}}
}

// Raise counts an occurrence. model must be one that is served, never just a
// client's word.
func (g *Gauge) Raise(model string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.models[model]
	if w == nil {
		w = &window{}
		g.models[model] = w
	}
	n := g.advance(w, now)
	w.counts[n%parts]++
	w.total++
}

// advance forgets what has left the window and returns the part of now.
func (g *Gauge) advance(w *window, now time.Time) int64 {
	n := now.UnixNano() / int64(g.part)
	if n <= w.newest {
		return max(n, w.newest-parts+1)
	}
	for i := max(w.newest+1, n-parts+1); i <= n; i++ {
		w.counts[i%parts] = 0
	}
	w.newest = n
	return n
}

// State is one model's pressure.
type State struct {
	Model  string `json:"model"`
	Recent int    `json:"recent"` // occurrences within the window, since the last reset
	Raised bool   `json:"raised"` // Recent has reached the threshold
	Total  uint64 `json:"total"`  // occurrences ever; a reset does not change it
}

// All returns the state of every model that was ever raised, by name.
func (g *Gauge) All(now time.Time) []State {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]State, 0, len(g.models))
	for _, model := range slices.Sorted(maps.Keys(g.models)) {
		out = append(out, g.state(model, now))
	}
	return out
}

// Of returns the state of one model.
func (g *Gauge) Of(model string, now time.Time) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state(model, now)
}

func (g *Gauge) state(model string, now time.Time) State {
	w := g.models[model]
	if w == nil {
		return State{Model: model}
	}
	g.advance(w, now)
	s := State{Model: model, Total: w.total}
	for _, c := range w.counts {
		s.Recent += c
	}
	s.Raised = s.Recent >= g.o.Threshold
	return s
}

// Reset forgets a model's recent occurrences, once somebody has acted on them.
func (g *Gauge) Reset(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.models[model]; w != nil {
		w.counts = [parts]int{}
	}
}

// Forget drops a model that is no longer served.
func (g *Gauge) Forget(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.models, model)
}
