package filter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudgetIsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := withBudget(context.Background(), time.Second)
		defer cancel()
		if at, ok := ctx.Deadline(); !ok || !at.Equal(start.Add(time.Second)) || ctx.Err() != nil {
			t.Errorf("deadline %v %v, err %v", at, ok, ctx.Err())
		}
		time.Sleep(300 * time.Millisecond) // waiting late does not move it
		derived, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		<-derived.Done()
		if took := time.Since(start); took != time.Second || !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(derived.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v, derived %v", took, ctx.Err(), derived.Err())
		}
	})
}

func TestBudgetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waits := range []bool{false, true} {
			ctx, cancel := withBudget(context.Background(), time.Second)
			if waits {
				ctx.Done()
			}
			cancel()
			cancel()
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("cancelled: %v", ctx.Err())
			}
		}
		outer, stop := context.WithCancel(context.Background())
		ctx, cancel := withBudget(outer, time.Second)
		defer cancel()
		stop()
		if <-ctx.Done(); !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("the stream ended: %v", ctx.Err())
		}
	})
}
