package main

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// startEvery is how often trim checks whether the router is ready: nothing
	// waits for it.
	startEvery = 500 * time.Millisecond
	// idleEvery is how often an idle router returns unused memory: scrapes and
	// snapshots of 100 replicas leave 0.5 MB of garbage a second, and collecting a heap
	// of 10 MB takes some 10 ms.
	idleEvery = 10 * time.Second
)

// trim returns memory to the system, once when the router is ready, and later while no
// requests come. Parsing configuration and tokenizers, and learning all replicas at
// once, leave two to three times as much garbage as live data, and without trim the
// heap grows to twice the sum before the next collection. Under load it does nothing.
func trim(ctx context.Context, ready func() error, decisions func() uint64) error {
	tick := time.NewTicker(startEvery)
	defer tick.Stop()
	started, seen := false, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		switch n := decisions(); {
		case !started && ready() == nil:
			started = true
			tick.Reset(idleEvery)
			debug.FreeOSMemory()
		case started && n == seen:
			debug.FreeOSMemory()
		default:
			seen = n
		}
	}
}
