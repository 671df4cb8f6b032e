package compare

import (
	"fmt"
	"io"
	"math"

	"warmroute/lab/simulator"
)

// figures are what the table compares.
var figures = []struct {
	name string
	of   func(l *Line) float64
	more bool // is better
}{
	{"throughput", func(l *Line) float64 { return l.Throughput }, true},
	{"mean TTFT", func(l *Line) float64 { return l.Mean }, false},
	{"p99 TTFT", func(l *Line) float64 { return l.P99 }, false},
	{"hit rate", func(l *Line) float64 { return l.Hit }, true},
}

// table writes, for each cell and figure, this router's ratio to the best rival, its noise
// and the rival: geometric means over the seeds, and half of the spread of the seeds' ratios.
func table(out io.Writer, rivals []string, cells []simulator.Cell, lines []Line) error {
	header, rule := "\n| workload | load |", "|---|---|"
	for _, f := range figures {
		header += " " + f.name + " | of the best rival's | ± | that is |"
		rule += "---|---|---|---|"
	}
	if _, err := fmt.Fprintf(out, "%s\n%s\n", header, rule); err != nil {
		return err
	}
	each := len(lines) / len(cells)
	for i, c := range cells {
		row := fmt.Sprintf("| %s | %s |", c.Workload, c.Load)
		for _, f := range figures {
			b := against(rivals, lines[i*each:(i+1)*each], f.of, f.more)
			row += fmt.Sprintf(" %.3g | %.3f | %.3f | %s |", b.value, b.ratio, b.noise, b.rival)
		}
		if _, err := fmt.Fprintln(out, row); err != nil {
			return err
		}
	}
	return nil
}

// best is a figure of this router beside the best rival's.
type best struct {
	value, ratio, noise float64
	rival               string
}

// against compares a cell's runs, which are by seed and then by policy, ours first.
func against(rivals []string, lines []Line, of func(l *Line) float64, more bool) best {
	const least = 1e-9 // hit rates may be 0
	policies := 1 + len(rivals)
	seeds := len(lines) / policies
	value := func(seed, policy int) float64 { return math.Log(max(least, of(&lines[seed*policies+policy]))) }
	mean := func(policy int) (sum float64) {
		for s := range seeds {
			sum += value(s, policy) / float64(seeds)
		}
		return sum
	}
	at, top := 0, math.Inf(-1)
	for p := 1; p < policies; p++ {
		v := mean(p)
		if !more {
			v = -v
		}
		if v > top {
			at, top = p, v
		}
	}
	low, high := math.Inf(1), math.Inf(-1)
	for s := range seeds {
		r := math.Exp(value(s, 0) - value(s, at))
		low, high = min(low, r), max(high, r)
	}
	return best{math.Exp(mean(0)), math.Exp(mean(0) - mean(at)), (high - low) / 2, rivals[at-1]}
}
