package main

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTrimGivesBackWhenReadyAndWhenIdle counts forced collections: none before
// the router is ready, one then, one each time no decision was made since the
// last look, and none under load. It ends with its context.
func TestTrimGivesBackWhenReadyAndWhenIdle(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // only forced ones
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		var decided atomic.Uint64
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		starting := func() error {
			if !ready.Load() {
				return errors.New("starting")
			}
			return nil
		}
		go func() { done <- trim(ctx, starting, decided.Load) }()
		collections := func(wait time.Duration) int64 {
			var before, after debug.GCStats
			debug.ReadGCStats(&before)
			time.Sleep(wait)
			synctest.Wait()
			debug.ReadGCStats(&after)
			return after.NumGC - before.NumGC
		}
		if n := collections(10 * startEvery); n != 0 {
			t.Errorf("%d collections before the router is ready", n)
		}
		ready.Store(true)
		if n := collections(2 * startEvery); n != 1 {
			t.Errorf("%d collections once it is ready, want 1", n)
		}
		if n := collections(3 * idleEvery); n != 3 {
			t.Errorf("%d collections while idle, want 3", n)
		}
		for range 3 {
			decided.Add(1)
			if n := collections(idleEvery); n != 0 {
				t.Errorf("%d collections under load", n)
			}
		}
		if n := collections(idleEvery); n != 1 {
			t.Errorf("%d collections when idle again, want 1", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
