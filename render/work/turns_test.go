package work

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// workOn works for a turn.
func (b *Budget) workOn() {
	for range looksPerTurn {
		b.Pause()
	}
}

// However much long work there is, not more of it runs at once than there are turns, and
// each piece comes to its end.
func TestTurns(t *testing.T) {
	const processors, pieces, slices = 2, 8, 20
	turns := NewTurns(processors)
	var running, most atomic.Int64
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range pieces {
		all.Go(func() {
			<-begin
			b := New(context.Background(), Limits{}, 0)
			b.InTurns(turns)
			defer b.End()
			b.workOn() // b takes a turn
			for range slices {
				now := running.Add(1)
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				for range 100 {
					runtime.Gosched() // to whatever else could run
				}
				running.Add(-1)
				b.workOn()
			}
		})
	}
	close(begin)
	all.Wait()
	if most.Load() > processors {
		t.Errorf("%d pieces of work ran at once on %d processors", most.Load(), processors)
	}
	if n := len(turns.working); n != 0 {
		t.Errorf("%d turns were not given back", n)
	}
}

// Work that waits for a turn gets it at the next look of the work that has it.
func TestTurnsAreHandedOn(t *testing.T) {
	const patience = 1_000_000 // looks
	turns := NewTurns(1)
	first := New(context.Background(), Limits{}, 0)
	first.InTurns(turns)
	first.workOn()
	defer first.End()
	second := make(chan struct{})
	go func() {
		defer close(second)
		b := New(context.Background(), Limits{}, 0)
		b.InTurns(turns)
		defer b.End()
		b.workOn()
	}()
	for range patience {
		first.Step(1)
		first.Pause()
		runtime.Gosched()
		select {
		case <-second:
			return
		default:
		}
	}
	t.Error("the second work never had its turn")
}

// Short work takes no turn, and so waits for no long work.
func TestShortWorkTakesNoTurn(t *testing.T) {
	turns := NewTurns(1)
	turns.take() // long work has the only one
	b := New(context.Background(), Limits{}, 0)
	b.InTurns(turns)
	for range firstTurn - 1 {
		b.Step(slice + 1)
	}
	b.End()
	if n := len(turns.working); n != 1 {
		t.Errorf("%d turns are taken, of 1", n)
	}
}

// Work that is stopped, or a Budget that starts again, gives its turn back.
func TestTurnsOfStoppedWork(t *testing.T) {
	turns := NewTurns(1)
	b := New(context.Background(), Limits{Steps: 3 * looksPerTurn * slice, StepsPerByte: 1}, 0)
	b.InTurns(turns)
	charge := func(n int) (err error) { defer Catch(&err); b.Step(n); return nil }
	if b.workOn(); len(turns.working) != 1 {
		t.Fatalf("%d turns taken", len(turns.working))
	}
	if charge(4*looksPerTurn*slice) == nil {
		t.Fatal("no end of the budget")
	}
	b.End()
	b.End() // again: nothing
	if len(turns.working) != 0 {
		t.Error("stopped work keeps its turn")
	}
	b.Start(context.Background(), Limits{}, 0)
	b.InTurns(turns)
	b.workOn()
	b.Start(context.Background(), Limits{}, 0)
	if len(turns.working) != 0 {
		t.Error("a Budget that starts again keeps the turn of before")
	}
}
