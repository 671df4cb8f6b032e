package work

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Turns share a number of processors among long pieces of work, so that the other
// processors stay free for short ones. A Budget takes its first turn after 0.3 ms of work.
// After that turn, of a millisecond, it is late: it gives way to Budgets that are not, and
// among late ones the next deadline decides. Of many long pieces that come at once the
// first ones are then done in time, instead of all of them too late.
//
// Go polls the network when a processor runs out of work, and else only every 10 ms. Long
// work that yields to other long work keeps all processors busy, so each message of a
// short request would wait for 10 ms.
//
// Safe for concurrent use.
type Turns struct {
	mu     sync.Mutex
	free   int
	prompt []chan struct{} // what waits and is not late, in order of arrival
	late   []lateTurn      // what waits and is late, in order of the deadlines
	asked  atomic.Bool     // prompt has elements
}

// lateTurn is the wait of late work for a turn.
type lateTurn struct {
	ready    chan struct{}
	deadline time.Time
}

// A turn has looksPerTurn looks at the context, about 1 ms of work. A Budget takes its
// first turn at its look number firstTurn, after 0.3 ms.
const (
	looksPerTurn = 12
	firstTurn    = 4
)

// NewTurns returns the turns of n processors, which must be positive.
func NewTurns(n int) *Turns { return &Turns{free: n} }

// take waits for a turn for b.
func (t *Turns) take(b *Budget) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return
	}
	ready := make(chan struct{})
	if b.late() {
		at := slices.IndexFunc(t.late, func(l lateTurn) bool { return sooner(b.deadline, l.deadline) })
		if at < 0 {
			at = len(t.late)
		}
		t.late = slices.Insert(t.late, at, lateTurn{ready, b.deadline})
	} else {
		t.prompt = append(t.prompt, ready)
		t.asked.Store(true)
	}
	t.mu.Unlock()
	<-ready
}

// sooner reports whether deadline a is before b; zero is no deadline.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// give gives the turn to what waits and is not late, else to what has the next deadline.
func (t *Turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.prompt) > 0:
		close(t.prompt[0])
		t.prompt = slices.Delete(t.prompt, 0, 1)
		t.asked.Store(len(t.prompt) > 0)
	case len(t.late) > 0:
		close(t.late[0].ready)
		t.late = slices.Delete(t.late, 0, 1)
	default:
		t.free++
	}
}

// InTurns makes b take turns of t, once it has worked for 0.3 ms, until End. With nil,
// and without InTurns, b takes none.
func (b *Budget) InTurns(t *Turns) { b.turns = t }

// End gives b's turn to other work. A Budget that takes turns must be ended; it can
// charge again, for which it takes another turn.
func (b *Budget) End() {
	if b.turn {
		b.turn = false
		b.turns.give()
	}
}

// yield lets other work go on: long work that waits for a turn, or else goroutines that
// wait for this processor.
func (b *Budget) yield() {
	b.looks++
	switch {
	case b.turns == nil || b.looks%looksPerTurn != firstTurn:
		runtime.Gosched()
	case !b.turn:
		b.turns.take(b)
		b.turn = true
	case b.turns.asked.Load():
		b.turns.give()
		b.turns.take(b)
	default:
		runtime.Gosched()
	}
}

// late reports whether b has had its first turn.
func (b *Budget) late() bool { return b.looks > looksPerTurn }
