package work

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// charged runs f and returns why it was stopped.
func charged(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}

func TestStepsEnd(t *testing.T) {
	for _, size := range []int{1, 7, slice, slice + 1, 5 * slice} {
		b := New(t.Context(), Limits{Steps: 10 * slice, StepsPerByte: 1}, 100)
		n := 0
		err := charged(func() {
			for ; n <= 11*slice; n += size {
				b.Step(size)
			}
		})
		if limit := 10*slice + 100; !errors.Is(err, ErrSteps) || n > limit || n+size <= limit {
			t.Errorf("steps of %d: %v after %d, want %v at %d", size, err, n, ErrSteps, limit)
		}
		if err := charged(func() { b.Step(1) }); !errors.Is(err, ErrSteps) {
			t.Errorf("a budget that has ended goes on: %v", err)
		}
		if err := charged(func() { b.Step(math.MaxInt) }); !errors.Is(err, ErrSteps) {
			t.Errorf("a budget that has ended goes on: %v", err)
		}
	}
}

func TestMemoryEnds(t *testing.T) {
	b := New(t.Context(), Limits{Memory: 1000, MemoryPerByte: 2}, 10)
	if err := charged(func() { b.Memory(1020) }); err != nil {
		t.Errorf("within the budget: %v", err)
	}
	if _, memory := b.Spent(); memory != 1020 {
		t.Errorf("%d bytes spent, want 1020", memory)
	}
	if err := charged(func() { b.Memory(1) }); !errors.Is(err, ErrMemory) {
		t.Errorf("error %v, want %v", err, ErrMemory)
	}
	if err := charged(func() { b.Step(1) }); !errors.Is(err, ErrMemory) {
		t.Errorf("a budget that has ended goes on: %v", err)
	}
}

// A context that ends stops the work within a slice.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := New(ctx, Limits{}, 0)
	n := 0
	err := charged(func() {
		for ; n < 100*slice; n++ {
			if n == 10*slice {
				cancel()
			}
			b.Step(1)
		}
	})
	if !errors.Is(err, ErrEnded) || !errors.Is(err, context.Canceled) || n > 11*slice {
		t.Errorf("%v after %d steps, want %v within a slice of %d", err, n, context.Canceled, 10*slice)
	}
}

// late is a context past its deadline whose timer has not run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

func TestDeadlineEnds(t *testing.T) {
	b := New(late{t.Context()}, Limits{}, 0)
	err := charged(func() { b.Step(2 * slice) })
	if !errors.Is(err, ErrEnded) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestZeroBudgetHasNoLimits(t *testing.T) {
	var b Budget
	if err := charged(func() { b.Memory(1 << 50); b.Step(1 << 50); b.Memory(1); b.Step(5) }); err != nil {
		t.Error(err)
	}
	if steps, memory := b.Spent(); steps != 1<<50+5 || memory != 1<<50+1 {
		t.Errorf("spent %d steps and %d bytes", steps, memory)
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	defer func() {
		if recover() != "mine" {
			t.Error("a panic of other code was taken for the end of a budget")
		}
	}()
	_ = charged(func() { panic("mine") })
}

func BenchmarkStep(b *testing.B) {
	w := New(b.Context(), Limits{Steps: math.MaxInt / 2}, 0)
	for b.Loop() {
		w.Step(1)
	}
}
