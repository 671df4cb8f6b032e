package filter

import (
	"context"
	"sync"
	"time"
)

// budget is a context with a deadline whose timer starts with the first wait
// for it: most requests find their token ids without waiting, and the timer
// would be the most expensive part of the call.
type budget struct {
	context.Context // the stream's
	deadline        time.Time

	mu     sync.Mutex // guards the fields below
	waited context.Context
	cancel context.CancelFunc
	over   bool
}

// withBudget is context.WithTimeout, but Err reports the deadline only once Done
// has been called.
func withBudget(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	b := &budget{Context: ctx, deadline: time.Now().Add(d)}
	return b, b.end
}

// Deadline implements context.Context.
func (b *budget) Deadline() (time.Time, bool) {
	if outer, ok := b.Context.Deadline(); ok && outer.Before(b.deadline) {
		return outer, true
	}
	return b.deadline, true
}

// Done implements context.Context. It starts the timer.
func (b *budget) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waited == nil {
		b.waited, b.cancel = context.WithDeadline(b.Context, b.deadline)
		if b.over {
			b.cancel()
		}
	}
	return b.waited.Done()
}

// Err implements context.Context.
func (b *budget) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.waited != nil:
		return b.waited.Err()
	case b.over:
		return context.Canceled
	}
	return b.Context.Err()
}

func (b *budget) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.cancel != nil {
		b.cancel()
	}
}
