package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mostBusy is the largest share of busy processors at which a pass measures policies;
// above it, requests also wait for processors.
const mostBusy = 0.5

// cpu is the machine's time so far, in ticks, over all processors.
type cpu struct{ busy, all uint64 }

// since returns the share of the time from before to c in which processors were busy.
func (c cpu) since(before cpu) float64 {
	if c.all <= before.all {
		return 0
	}
	return float64(c.busy-before.busy) / float64(c.all-before.all)
}

// busyWhile returns the share of f's time in which processors were busy.
func busyWhile(f func()) (float64, error) {
	before, err := readCPU()
	if err != nil {
		return 0, err
	}
	f()
	after, err := readCPU()
	return after.since(before), err
}

// readCPU reads the kernel's account, /proc/stat.
func readCPU() (cpu, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpu{}, err
	}
	return parseCPU(string(b))
}

// parseCPU reads the first line: user, nice, system, idle, iowait, irq, softirq, steal.
// The fields after it are parts of user (proc_stat(5)).
func parseCPU(stat string) (c cpu, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return c, errors.New("/proc/stat does not begin with the machine's eight times")
	}
	for i, f := range fields[1:9] {
		v, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return c, fmt.Errorf("/proc/stat: %w", err)
		}
		c.all += v
		if i != 3 && i != 4 {
			c.busy += v
		}
	}
	return c, nil
}
