package work

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// workOn works for a turn.
func (b *Budget) workOn() {
	for range looksPerTurn {
		b.Pause()
	}
}

// taken returns the number of turns that are taken, of turns of one processor.
func (t *Turns) taken() int { return 1 - t.free }

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
	if n := processors - turns.free; n != 0 {
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
	turns.take(new(Budget)) // long work has the only one
	b := New(context.Background(), Limits{}, 0)
	b.InTurns(turns)
	for range firstTurn - 1 {
		b.Step(slice + 1)
	}
	b.End()
	if n := turns.taken(); n != 1 {
		t.Errorf("%d turns are taken, of 1", n)
	}
}

// Work that is stopped, or a Budget that starts again, gives its turn back.
func TestTurnsOfStoppedWork(t *testing.T) {
	turns := NewTurns(1)
	b := New(context.Background(), Limits{Steps: 3 * looksPerTurn * slice, StepsPerByte: 1}, 0)
	b.InTurns(turns)
	charge := func(n int) (err error) { defer Catch(&err); b.Step(n); return nil }
	if b.workOn(); turns.taken() != 1 {
		t.Fatalf("%d turns taken", turns.taken())
	}
	if charge(4*looksPerTurn*slice) == nil {
		t.Fatal("no end of the budget")
	}
	b.End()
	b.End() // again: nothing
	if turns.taken() != 0 {
		t.Error("stopped work keeps its turn")
	}
	b.Start(context.Background(), Limits{}, 0)
	b.InTurns(turns)
	b.workOn()
	b.Start(context.Background(), Limits{}, 0)
	if turns.taken() != 0 {
		t.Error("a Budget that starts again keeps the turn of before")
	}
}

// Of long work that comes at once, one piece is done before the others have had more than one
// turn, and those are done in the order of their deadlines.
func TestLongWorkIsDoneOneAfterTheOther(t *testing.T) {
	const pieces, length = 6, 40 // turns
	turns := NewTurns(1)
	held := new(Budget)
	turns.take(held)
	var had [pieces]int // written by the piece that has the turn
	var done []int
	var all sync.WaitGroup
	start := time.Now()
	for i := range pieces {
		all.Go(func() {
			ctx, cancel := context.WithDeadline(context.Background(), start.Add(time.Hour+time.Duration(i*7%pieces)*time.Minute))
			defer cancel()
			b := New(ctx, Limits{}, 0)
			b.InTurns(turns)
			defer b.End()
			for had[i] < length {
				b.workOn()
				had[i]++
			}
			if done == nil {
				for j, n := range had {
					if j != i && n > 1 {
						t.Errorf("when the first piece was done, piece %d had %d turns", j, n)
					}
				}
			}
			done = append(done, i*7%pieces)
		})
	}
	for waiting := 0; waiting < pieces; runtime.Gosched() {
		turns.mu.Lock()
		waiting = len(turns.prompt)
		turns.mu.Unlock()
	}
	turns.give()
	all.Wait()
	if !slices.IsSorted(done[1:]) {
		t.Errorf("done in the order %v of the deadlines", done)
	}
}
