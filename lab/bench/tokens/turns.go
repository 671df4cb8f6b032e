package main

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"warmroute/render"
)

const (
	turnRounds = 30 // conversations measured in turns
	nextTurns  = 8  // turns added to each
)

// turns prints for every dialect the cost of a conversation of 100 KB from its body's
// bytes to ids: the first time, and after a further turn of 1 KB. It measures processor
// time and alternates first and next turns, so that other work of the machine affects
// both alike.
func turns(text string) error {
	fmt.Println("\n| dialect | first turn, median, ms | least | next turn, median, ms | least | of the first, medians | least |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, m := range templated {
		d, q, err := open(m.name)
		if err != nil {
			return err
		}
		if d.Info().Template == "" {
			continue
		}
		if err := measureTurns(m.name, q, text); err != nil {
			return err
		}
	}
	for _, d := range dialects {
		q, err := d.load()
		if err != nil {
			return err
		}
		if err := measureTurns(d.name, q, text); err != nil {
			return err
		}
	}
	return nil
}

func measureTurns(name string, q *render.Server, text string) error {
	r := &reader{text: text, at: 23}
	var first, next []float64
	for range turnRounds {
		list := r.dialogue(size)
		raw, err := body(list)
		if err != nil {
			return err
		}
		took, err := processor(q, raw)
		if err != nil {
			return err
		}
		first = append(first, took)
		for range nextTurns {
			if list, raw, err = r.grown(list); err != nil {
				return err
			}
			if took, err = processor(q, raw); err != nil {
				return err
			}
			next = append(next, took)
		}
	}
	slices.Sort(first)
	slices.Sort(next)
	f, n := first[len(first)/2], next[len(next)/2]
	fmt.Printf("| %s | %.2f | %.2f | %.3f | %.3f | 1/%.1f | 1/%.1f |\n", name, f, first[0], n, next[0], f/n, first[0]/next[0])
	return nil
}

// processor returns the processor time, in ms, that a body's ids cost.
func processor(q *render.Server, raw []byte) (ms float64, err error) {
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &before); err != nil {
		return 0, err
	}
	if _, _, err := ask(q, raw); err != nil {
		return 0, err
	}
	err = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &after)
	return float64(after.Nano()-before.Nano()) / 1e6, err
}
