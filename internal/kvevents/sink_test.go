package kvevents

import (
	"sync"

	"warmroute/index"
	"warmroute/prefixhash"
)

// mapSink is the reference: a map per holder, nothing clever. Blocks are held in copies,
// as vLLM counts physical blocks; keys are linked as the contract states. Every change
// wakes the goroutines that wait.
type mapSink struct {
	mu      sync.Mutex
	changed *sync.Cond
	inc     uint64
	copies  map[uint64]int            // hash → copies on the GPU
	keys    map[uint64]prefixhash.Key // hash → own key, if known
	byKey   map[prefixhash.Key]int
	blocks  int // stored block announcements ever
	batches int
	clears  int
}

func newMapSink() *mapSink {
	s := &mapSink{}
	s.changed = sync.NewCond(&s.mu)
	s.reset()
	return s
}

func (s *mapSink) reset() {
	s.copies, s.keys, s.byKey = map[uint64]int{}, map[uint64]prefixhash.Key{}, map[prefixhash.Key]int{}
}

func (s *mapSink) Begin(index.Holder) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inc++
	s.reset()
	s.changed.Broadcast()
	return s.inc
}

func (s *mapSink) Apply(b *index.Batch) (r index.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	if b.Incarnation != s.inc {
		return r, nil
	}
	if len(b.Events) > 0 {
		s.batches++
	}
	for _, e := range b.Events {
		switch e.Kind {
		case index.Cleared:
			s.clears++
			s.reset()
		case index.Removed:
			s.remove(e)
		case index.Stored:
			s.store(e, &r)
		}
	}
	return r, nil
}

func (s *mapSink) remove(e index.Event) {
	if e.Tier != index.TierGPU {
		return
	}
	for _, h := range e.Hashes {
		if s.copies[h]--; s.copies[h] <= 0 {
			delete(s.copies, h)
			if k, ok := s.keys[h]; ok {
				delete(s.keys, h)
				if s.byKey[k]--; s.byKey[k] == 0 {
					delete(s.byKey, k)
				}
			}
		}
	}
}

func (s *mapSink) store(e index.Event, r *index.Result) {
	if e.Tier != index.TierGPU {
		return
	}
	s.blocks += len(e.Hashes)
	parent, known := prefixhash.TokenRoot(e.Scope.Model, e.Scope.LoRA), true
	if e.HasParent {
		parent, known = s.keys[e.Parent], s.keys[e.Parent] != 0
	}
	for i, h := range e.Hashes {
		s.copies[h]++
		switch {
		case e.Content == nil:
			known = false
		case !known:
			r.Orphaned++
		default:
			parent = prefixhash.Link(parent, e.Content[i])
			if _, again := s.keys[h]; !again {
				s.keys[h] = parent
				s.byKey[parent]++
			}
			r.Stored++
		}
	}
}

// held returns the held hashes.
func (s *mapSink) held() map[uint64]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[uint64]int, len(s.copies))
	for h, n := range s.copies {
		out[h] = n
	}
	return out
}
