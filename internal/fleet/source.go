package fleet

import (
	"context"
	"sync"
)

// Source names replicas. Watch calls set with the complete list whenever it
// changes, at least once if it can, and returns when ctx ends. An error before
// that is logged and counted, the list given last stays, and Watch is called
// again after a wait. A source that loses sight of its origin should keep its
// list: a replica that is really gone is noticed by its silence.
//
// When two sources name one address, the earlier source's settings count: the
// static list, then DNS names in order, then Options.Sources.
type Source interface {
	Watch(ctx context.Context, set func([]ReplicaOptions)) error
}

// static is the list from the configuration, which may be replaced.
type static struct {
	changed chan struct{} // capacity 1

	mu   sync.Mutex
	list []ReplicaOptions
}

func newStatic(list []ReplicaOptions) *static {
	return &static{changed: make(chan struct{}, 1), list: list}
}

func (s *static) replace(list []ReplicaOptions) {
	s.mu.Lock()
	s.list = list
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default: // one note is enough: Watch reads the latest list
	}
}

func (s *static) Watch(ctx context.Context, set func([]ReplicaOptions)) error {
	for {
		s.mu.Lock()
		list := s.list
		s.mu.Unlock()
		set(list)
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

func (s *static) String() string { return "static" }
