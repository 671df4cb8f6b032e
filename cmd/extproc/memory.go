package main

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"warmroute/filter"
	"warmroute/index"
)

const (
	// gcPercent is GOGC unless the environment sets it or a memory limit: the tokenizers'
	// tables are most of the live heap, and marking them half as often costs half as much.
	gcPercent = 200
	// memoryEvery is the time after which Go's limit follows the index's size: a large
	// index fills in minutes.
	memoryEvery = 10 * time.Second
	// unlimitedBodies is the limit of all bodies without a limit of memory.
	unlimitedBodies = 1 << 30
	// bodyFactor bounds the memory of the work on a body, as a multiple of its size. As
	// much again is left for all else.
	bodyFactor = 8
)

// tuneMemory sets the parameters that the environment does not set: GOGC, and Go's memory
// limit.
func tuneMemory(log *slog.Logger) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
	}
	switch limit, err := limitMemory(); {
	case err != nil:
		log.Warn("the container's memory limit cannot be read; set GOMEMLIMIT", "error", err)
	case limit == math.MaxInt64:
		log.Info("memory is not limited: neither GOMEMLIMIT nor the container limits it")
	default:
		log.Info("memory limit", "heap_bytes", limit, "from_environment", os.Getenv("GOMEMLIMIT") != "")
	}
}

// limitMemory sets Go's memory limit, unless GOMEMLIMIT is set, to nine tenths of heapRoom.
// It returns the limit in force, math.MaxInt64 for none.
func limitMemory() (int64, error) { return memlimit.Set(memlimit.WithProvider(heapRoom)) }

// heapRoom returns the container's limit without the index's blocks, which are outside of
// Go's heap, but at least half of the limit.
func heapRoom() (uint64, error) {
	limit, err := memlimit.FromCgroup()
	if err != nil {
		return 0, err
	}
	return limit - min(limit/2, uint64(index.OffHeap())), nil
}

// followMemory adjusts Go's memory limit while the index grows, until ctx ends.
func followMemory(ctx context.Context) error {
	return every(ctx, memoryEvery, func(time.Time) {
		_, _ = limitMemory() // an error was logged at the start
	})
}

// bodies returns the most bytes of all bodies that are worked on or held at a time, for a
// memory limit in bytes: room at least for the longest body, which counts twice if it comes in
// several pieces, and for small ones.
func (c FilterConfig) bodies(memory int64) int64 {
	limit := int64(unlimitedBodies)
	if memory < math.MaxInt64 {
		limit = memory / (2 * bodyFactor)
	}
	return max(limit, int64(2*c.MaxBody+filter.SmallShare))
}

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
	starting, started := context.WithCancel(ctx)
	defer started()
	_ = every(starting, startEvery, func(time.Time) {
		if ready() == nil {
			debug.FreeOSMemory()
			started()
		}
	})
	seen := decisions()
	return every(ctx, idleEvery, func(time.Time) {
		n := decisions()
		if n == seen {
			debug.FreeOSMemory()
		}
		seen = n
	})
}

// spareProcessor gives Go a second processor on a machine of one core, unless the
// environment sets their number.
func spareProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
	}
}

// forLongWork returns the number of Go's processors that long work takes turns on: all but
// one, which always looks for new messages from the network.
func forLongWork() int { return max(1, runtime.GOMAXPROCS(0)-1) }
