package work

import (
	"runtime"
	"sync/atomic"
)

// Turns share a number of processors among long pieces of work, so that the other
// processors stay free for short ones. A Budget takes its first turn after 0.3 ms of work,
// and gives its turn to the next Budget after each further millisecond.
//
// Go polls the network when a processor runs out of work, and else only every 10 ms. Long
// work that yields to other long work keeps all processors busy, so each message of a
// short request would wait for 10 ms.
//
// Safe for concurrent use.
type Turns struct {
	working chan struct{} // an element for each piece of work that has its turn
	waiting atomic.Int64
}

// A turn has looksPerTurn looks at the context, about 1 ms of work. A Budget takes its
// first turn at its look number firstTurn, after 0.3 ms.
const (
	looksPerTurn = 12
	firstTurn    = 4
)

// NewTurns returns the turns of n processors, which must be positive.
func NewTurns(n int) *Turns { return &Turns{working: make(chan struct{}, n)} }

func (t *Turns) take() {
	select {
	case t.working <- struct{}{}:
		return
	default:
	}
	t.waiting.Add(1)
	t.working <- struct{}{}
	t.waiting.Add(-1)
}

func (t *Turns) give() { <-t.working }

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
		b.turns.take()
		b.turn = true
	case b.turns.waiting.Load() > 0:
		b.turns.give()
		b.turns.take()
	default:
		runtime.Gosched()
	}
}
