package work

import (
	"runtime"
	"sync/atomic"
)

// Turns share a number of processors among long pieces of work, so that the others stay
// free for short ones. A Budget takes part once it has worked longer than between two
// looks, and lets the next one work at each look.
//
// Go looks for what has arrived from the network when a processor runs out of work, and
// else only every 10 ms. Long work that yields to other long work keeps all processors
// busy, so each message of a short request would wait for as long as that.
//
// Safe for concurrent use.
type Turns struct {
	working chan struct{} // an element for each piece of work that has its turn
	waiting atomic.Int64
}

// NewTurns returns the turns of n processors, which must be positive.
func NewTurns(n int) *Turns { return &Turns{working: make(chan struct{}, n)} }

// Processors is the number of pieces of work that have their turn at once.
func (t *Turns) Processors() int { return cap(t.working) }

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

// InTurns has b take turns, from its next look at the context until End. Nil: it does
// not, as at the start.
func (b *Budget) InTurns(t *Turns) { b.turns = t }

// End gives b's turn to other work. A Budget that takes turns must be ended; it can
// charge again, for which it takes another turn.
func (b *Budget) End() {
	if b.turn {
		b.turn = false
		b.turns.give()
	}
}

// yield lets other work go on: other long work that waits for a turn, and whatever waits
// for this processor.
func (b *Budget) yield() {
	switch {
	case b.turns == nil:
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
