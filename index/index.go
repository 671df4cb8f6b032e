package index

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hybrid"
	"warmroute/index/internal/offheap"
)

// Index records which holder has which blocks. Any goroutine may call its methods at
// any time. The package comment says which methods wait for which.
type Index struct {
	o     Options
	clock epoch.Clock
	pool  offheap.Pool

	seed  uint64 // of the tables, a secret
	start int64  // Unix nanoseconds: when the index was made

	keyspaces atomic.Pointer[map[Scope]*keyspace] // replaced by a copy
	registry

	mu     sync.Mutex // holders, shards and keyspaces being made or removed
	shards map[shardKey]*shard
	shares map[string]*share // of the scopes, by replica

	grouped
	closed atomic.Bool
	sweeps
	totals
}

// registry has the known holders, by number.
type registry struct {
	pages   atomic.Pointer[[]*idPage]
	holders sync.Map   // Holder → *holder
	nextID  HolderID   // guarded by Index.mu, as freeIDs
	freeIDs []HolderID // the longest free first

	incarnations atomic.Uint64
}

// grouped has what looks up caches of several groups.
type grouped struct {
	groupSettings map[string]*GroupSettings                  // by replica; guarded by Index.mu
	models        atomic.Pointer[map[modelKey]*hybrid.Model] // replaced by a copy
	budget        hybrid.Budget                              // of the models
}

// sweeps are asked for, and done one at a time.
type sweeps struct {
	sweeping      sync.Mutex
	sweepRequests chan struct{}
}

// totals count for the whole index.
type totals struct {
	blocks   atomic.Int64 // keys kept
	evicted  atomic.Uint64
	cut      atomic.Int64 // Unix ns of the last eviction by a cap
	removals atomic.Int64 // remembered, of all holders
	expiring atomic.Int64 // blocks that end at a time, of all holders
}

// New makes an empty index.
func New(o Options) *Index {
	o = o.Effective()
	x := &Index{o: o, shards: map[shardKey]*shard{}, shares: map[string]*share{}, grouped: grouped{groupSettings: map[string]*GroupSettings{}}, sweeps: sweeps{sweepRequests: make(chan struct{}, 1)}}
	x.clock.Init()
	x.pool.Init(&x.clock)
	x.seed, x.start = rand.Uint64(), o.Now().UnixNano()
	x.budget.Max = o.MaxBlocks
	x.keyspaces.Store(&map[Scope]*keyspace{})
	x.models.Store(&map[modelKey]*hybrid.Model{})
	x.pages.Store(&[]*idPage{})
	return x
}

// keyspace returns a scope's tables. It makes absent tables for a replica. It returns
// nil when there are too many scopes, of all replicas or of this one, or the index is
// closed.
func (x *Index) keyspace(s Scope, replica string) *keyspace {
	if ks := (*x.keyspaces.Load())[s]; ks != nil {
		return ks
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.keyspaces.Load()
	if ks := old[s]; ks != nil || x.closed.Load() || !x.admitScope(replica, len(old)) {
		return ks
	}
	k := s.shardKey()
	sh := x.shards[k]
	if sh == nil {
		sh = newShard(x, k)
		x.shards[k] = sh
	}
	sh.mu.Lock()
	ks := newKeyspace(sh, s)
	ks.maker = replica
	sh.mu.Unlock()
	next := maps.Clone(old)
	next[s] = ks
	x.keyspaces.Store(&next)
	return ks
}

// Close drops everything. Lookups match nothing afterwards, Apply fails with ErrClosed,
// and the memory outside the Go heap is returned. It may be called more than once; a
// Run that is still going ends by its context.
func (x *Index) Close() {
	if x.closed.Swap(true) {
		return
	}
	x.mu.Lock()
	x.keyspaces.Store(&map[Scope]*keyspace{})
	shards := x.shards
	x.shards = map[shardKey]*shard{}
	x.mu.Unlock()
	for _, sh := range shards {
		sh.mu.Lock() // after writers that were at work; later ones see closed
		for _, ks := range sh.keyspaces {
			if ks != nil {
				ks.discard()
			}
		}
		sh.keyspaces = nil
		for i := range sh.info {
			sh.info[i].discard()
		}
		sh.mu.Unlock()
	}
	for _, m := range *x.models.Load() {
		m.Close()
	}
	x.pool.Close()
}

func (ks *keyspace) discard() {
	ks.tree.Discard()
	for _, t := range ks.flats() {
		t.Discard()
	}
}

// requestSweep makes Run sweep soon.
func (x *Index) requestSweep() {
	select {
	case x.sweepRequests <- struct{}{}:
	default:
	}
}
