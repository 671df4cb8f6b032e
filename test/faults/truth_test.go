package faults

import (
	"sync"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

const (
	blockSize = 4  // tokens
	chainLen  = 12 // blocks
	chains    = 24
	shared    = 4 // blocks that chains of one family have in common
	family    = 3 // chains
)

var scope = index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: blockSize}

// chain is one prompt, block by block.
type chain struct {
	tokens []uint32
	keys   []prefixhash.Key
	hashes []uint64 // the engines' names of the blocks
}

// prompts are all prompts of a test.
type prompts struct {
	chains [chains]chain
	key    map[uint64]prefixhash.Key // by engine hash
}

func newPrompts() *prompts {
	p := &prompts{key: make(map[uint64]prefixhash.Key)}
	for i := range p.chains {
		c := &p.chains[i]
		for at := range chainLen * blockSize {
			own := i
			if at < shared*blockSize {
				own = i - i%family
			}
			c.tokens = append(c.tokens, uint32(1000*own+at))
		}
		c.keys = prefixhash.AppendTokens(nil, prefixhash.TokenRoot(scope.Model, scope.LoRA), c.tokens, prefixhash.Blocks{Size: blockSize}, nil)
		for _, k := range c.keys {
			h := uint64(k)*0x9e3779b97f4a7c15 | 1 // any other number, the same for the same block
			c.hashes = append(c.hashes, h)
			p.key[h] = k
		}
	}
	return p
}

// record has the blocks of a cache, and since when it does not hold the blocks that it
// has lost.
type record struct {
	mu   sync.Mutex
	held map[uint64]bool
	gone map[uint64]time.Time
}

func newRecord() *record {
	return &record{held: make(map[uint64]bool), gone: make(map[uint64]time.Time)}
}

func (r *record) store(hashes ...uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hashes {
		r.held[h] = true
	}
}

func (r *record) remove(at time.Time, hashes ...uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hashes {
		if r.held[h] {
			delete(r.held, h)
			r.gone[h] = at
		}
	}
}

// apply takes events as of a time, atomically for readers.
func (r *record) apply(at time.Time, events []index.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if e.Kind == index.Cleared {
			r.reset(at)
		}
		for _, h := range e.Hashes {
			if e.Kind == index.Stored {
				r.held[h] = true
			} else if r.held[h] {
				delete(r.held, h)
				r.gone[h] = at
			}
		}
	}
}

func (r *record) clear(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reset(at)
}

func (r *record) reset(at time.Time) {
	for h := range r.held {
		r.gone[h] = at
	}
	clear(r.held)
}

func (r *record) holds(h uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[h]
}

// all returns the held blocks, in no order that means anything.
func (r *record) all() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]uint64, 0, len(r.held))
	for h := range r.held {
		out = append(out, h)
	}
	return out
}

// stale returns for how long h, seen at a time, had been gone by then.
func (r *record) stale(h uint64, seen time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, was := r.gone[h]; was && !r.held[h] {
		return max(0, seen.Sub(at))
	}
	return 0
}

// contents are the keys that each holder has, by the index's own snapshot.
func contents(x *index.Index) map[index.Holder]map[prefixhash.Key]bool {
	out := make(map[index.Holder]map[prefixhash.Key]bool)
	for e := range x.Snapshot() {
		if out[e.Holder] == nil {
			out[e.Holder] = make(map[prefixhash.Key]bool)
		}
		out[e.Holder][e.Key] = true
	}
	return out
}
