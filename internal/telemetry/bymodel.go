package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// MostModels is the number of models with series of their own.
const MostModels = 64

// OtherModels is the label of all models beyond MostModels.
const OtherModels = "other"

// ByModel has a T for each model, such as its series of some metrics, and one for all
// models beyond MostModels. Callers pass only names of models that are served: a name of a
// request would let clients make series. Make it with NewByModel; Of is safe for
// concurrent use, and allocates and waits only for a new model.
type ByModel[T any] struct {
	make  func(model string) *T
	mu    sync.Mutex // for new models
	known atomic.Pointer[map[string]*T]
}

// NewByModel returns a ByModel that has the T of requests without a model, "".
func NewByModel[T any](of func(model string) *T) *ByModel[T] {
	b := &ByModel[T]{make: of}
	b.known.Store(&map[string]*T{"": of("")})
	return b
}

// All returns every T by its model; the map must not be changed.
func (b *ByModel[T]) All() map[string]*T { return *b.known.Load() }

// Of returns the T of a model.
func (b *ByModel[T]) Of(model string) *T {
	if t := (*b.known.Load())[model]; t != nil {
		return t
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known := *b.known.Load()
	if len(known) > MostModels { // with that of ""
		model = OtherModels
	}
	if t := known[model]; t != nil {
		return t
	}
	known = maps.Clone(known)
	known[model] = b.make(model)
	b.known.Store(&known)
	return known[model]
}
