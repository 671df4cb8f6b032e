package main

import (
	"os"
	"runtime"
)

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
