package prompttree

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

// Options bound Trees. Zero values are the defaults.
type Options struct {
	HalfLife   time.Duration // of weights; default 2 min
	MaxEntries int           // entries per model; default 65,536, about 8 MiB
}

func (o Options) withDefaults() Options {
	if o.HalfLife <= 0 {
		o.HalfLife = 2 * time.Minute
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 1 << 16
	}
	return o
}

// Model names a tree.
type Model struct{ Tenant, Name string }

// Trees holds one tree per model.
type Trees struct {
	o     Options
	mu    sync.Mutex
	trees map[Model]*tree

	longest atomic.Int64 // TTL of any model so far, nanoseconds

	leave sync.Mutex // one Invalidate at a time
	gone  atomic.Pointer[map[index.HolderID]int64]
}

// New returns Trees without a tree.
func New(o Options) *Trees {
	t := &Trees{o: o.withDefaults(), trees: map[Model]*tree{}}
	t.gone.Store(&map[index.HolderID]int64{})
	return t
}

// Observe records that h served a request with this chain at now, and drops entries older
// than ttl, the model's. An empty chain records nothing.
func (t *Trees) Observe(m Model, chain []prefixhash.Key, h index.HolderID, now time.Time, ttl time.Duration) {
	if len(chain) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.trees[m]
	if of == nil {
		of = newTree(&t.o)
		t.trees[m] = of
	}
	t.longest.Store(max(t.longest.Load(), int64(ttl)))
	of.observe(chain, h, nanos(now), ttl)
}

// Match calls yield, in order of depth, with the holders that were named on the chain's
// path within ttl, and the depth; the last call for a holder has its greatest depth.
// yield must not call back.
func (t *Trees) Match(m Model, chain []prefixhash.Key, now time.Time, ttl time.Duration, yield func(h index.HolderID, depth int)) {
	if len(chain) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if of := t.trees[m]; of != nil {
		of.match(chain, nanos(now), ttl, *t.gone.Load(), yield)
	}
}

// Weight returns the number of a holder's entries in a model's tree, weighted by age.
func (t *Trees) Weight(m Model, h index.HolderID, now time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.trees[m]
	if of == nil {
		return 0
	}
	return of.weightOf(h, nanos(now))
}

// Invalidate ends the entries of holders that have left, up to now. It waits for no
// request.
func (t *Trees) Invalidate(now time.Time, holders ...index.HolderID) {
	t.leave.Lock()
	defer t.leave.Unlock()
	gone := maps.Clone(*t.gone.Load())
	maps.DeleteFunc(gone, func(_ index.HolderID, at int64) bool { return nanos(now)-at > t.longest.Load() })
	for _, h := range holders {
		gone[h] = nanos(now)
	}
	t.gone.Store(&gone)
}

// Entries returns the number of entries of all trees.
func (t *Trees) Entries() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, of := range t.trees {
		n += len(of.entries)
	}
	return n
}
