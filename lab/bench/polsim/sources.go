package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"warmroute/lab/simulator"
	"warmroute/lab/simulator/brain"
)

// contender is a source of matches, and the number of routers that share it.
type contender struct {
	source  string
	routers int
}

// sharedDelay is the one-way delay of the messages between routers, in seconds.
const sharedDelay = 0.001

// compareSources prints the mean time to first token of routers that know the replicas'
// caches from different sources, over that of one router by the replicas' events.
func (o *options) compareSources(cells []cell, out, log io.Writer) error {
	all := []contender{{"events", 1}}
	for name := range strings.SplitSeq(o.sources, ",") {
		if _, ok := brain.Sources[name]; !ok {
			return fmt.Errorf("-sources: there is no source %q", name)
		}
		for _, n := range []int{1, 4} {
			if c := (contender{name, n}); c != all[0] {
				all = append(all, c)
			}
		}
	}
	results, err := o.grid(len(all), cells, func(i int, c cell) (simulator.Result, error) {
		r, err := o.fromSource(all[i], c)
		o.log(log, c, fmt.Sprintf("%s, %d routers", all[i].source, all[i].routers), r)
		return r, err
	})
	if err != nil {
		return err
	}
	fmt.Fprint(out, "| trace | replicas | load | events, 1 router |")
	for _, k := range all[1:] {
		fmt.Fprintf(out, " %s, %d |", k.source, k.routers)
	}
	fmt.Fprintf(out, "\n|%s\n", strings.Repeat("---|", 3+len(all)))
	for _, row := range rows(cells) {
		c := cells[row[0]]
		fmt.Fprintf(out, "| %s | %d | %g |", c.trace.Name, c.replicas, c.load)
		for i := range all {
			sum := 0.0
			for _, at := range row {
				sum += math.Log(results[i][at].Mean)
				if i > 0 {
					sum -= math.Log(results[0][at].Mean)
				}
			}
			fmt.Fprintf(out, " %.3f%s |", math.Exp(sum/float64(len(row))), map[bool]string{true: " s"}[i == 0])
		}
		fmt.Fprintln(out)
	}
	return nil
}

// rows returns the places of the cells of each row: they differ in their seed alone.
func rows(cells []cell) (rows [][]int) {
	for at, c := range cells {
		i := slices.IndexFunc(rows, func(row []int) bool {
			first := cells[row[0]]
			return first.trace.Name == c.trace.Name && first.replicas == c.replicas && first.load == c.load
		})
		if i < 0 {
			rows = append(rows, nil)
			i = len(rows) - 1
		}
		rows[i] = append(rows[i], at)
	}
	return rows
}

// fromSource runs routers that know caches from one source.
func (o *options) fromSource(k contender, c cell) (r simulator.Result, err error) {
	b, err := o.brain(c, brain.OneGroup)
	if err != nil {
		return r, err
	}
	b.Source = brain.Sources[k.source]
	if !o.unnamed {
		b.Capacity = o.hardware().Capacity
	}
	rs, err := brain.NewRouters(k.routers, sharedDelay, b)
	if err != nil {
		return r, err
	}
	defer rs.Close()
	cfg := o.of(c)
	cfg.Policy = func(*simulator.Sim) simulator.Policy { return rs }
	return simulator.New(cfg, c.trace, c.rate).Run(), nil
}
