package main

import (
	"cmp"
	"os"
	"runtime"
)

// spareProcessor gives Go one processor more than the machine has cores, unless the
// environment sets their number. Long work takes turns on the others, so Go always has
// one that polls the network, and the kernel shares the cores.
func spareProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}

// cores is the number of processors for long work: all but the spare one.
func cores() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// renderings returns filter.renderings, by default one for each core.
func (r *router) renderings(c Config) int { return cmp.Or(c.Filter.Renderings, r.turns.Processors()) }
