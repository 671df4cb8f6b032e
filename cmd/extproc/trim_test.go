package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTrimWaitsUntilReadyAndIsDoneOnce: it asks from time to time, and not again
// after the first yes; it ends with its context.
func TestTrimWaitsUntilReadyAndIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		_ = trim(t.Context(), func() error {
			if asked++; asked < 3 {
				return errors.New("starting")
			}
			return nil
		})
		if asked != 3 {
			t.Errorf("asked %d times, want until the first yes, the third", asked)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*trimEvery)
		defer cancel()
		began := time.Now()
		_ = trim(ctx, func() error { return errors.New("never") })
		if took := time.Since(began); took != 10*trimEvery {
			t.Errorf("ended after %v, want with its context", took)
		}
	})
}
