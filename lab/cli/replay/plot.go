package replay

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"warmroute/lab/simulator"
)

// The plot, in SVG user units: bars, and curves below them.
const (
	plotWidth, curvesHeight = 800, 340
	left, right             = 60, 150 // margins; the legend is on the right
	top, bottom             = 20, 45
	barsLeft, barsRight     = 150, 345 // margins: names, and numbers
	barHeight, barStep      = 16, 22
)

// colours are Okabe and Ito's, which people with any colour vision can distinguish; the
// first is this router's.
var colours = [...]string{"#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#999999"}

// plot writes two panels: the prefill that every policy leaves, and the distribution of
// times to first token with the first number of replicas.
func (o Options) plot(t *simulator.Trace, outcomes []outcome) error {
	var b bytes.Buffer
	bars := top + 2*barStep + barStep*(len(outcomes)+len(o.Replicas))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, bars+curvesHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, bars+curvesHeight)
	o.bars(&b, o.cost(o.counted(t)), outcomes)
	fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", bars)
	curves(&b, slices.DeleteFunc(slices.Clone(outcomes), func(r outcome) bool { return r.replicas != o.Replicas[0] }))
	b.WriteString("</g>\n</svg>\n")
	_, err := o.Plot.Write(b.Bytes())
	return err
}

// bars draws a bar for each outcome: the seconds of prefill.
func (o Options) bars(b *bytes.Buffer, c cost, outcomes []outcome) {
	most := 0.0
	for _, r := range outcomes {
		most = max(most, r.Prefill)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">GPU time of prefill, by policy (shorter is better)</text>`+"\n", left, top)
	y := top + barStep/2
	for i, r := range outcomes {
		if i == 0 || r.replicas != outcomes[i-1].replicas {
			y += barStep
			fmt.Fprintf(b, `<text x="%d" y="%d">%d replicas</text>`+"\n", left, y, r.replicas)
		}
		y += barStep
		width := r.Prefill / max(1e-9, most) * (plotWidth - barsLeft - barsRight)
		colour := colours[i%(1+len(o.Rivals))%len(colours)]
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%.0f %% cached%s</text>`+"\n",
			barsLeft-6, y, r.name, barsLeft, y-barHeight+4, width, barHeight, colour, barsLeft+width+6, y, 100*r.Hit, c.inMonth(r.Prefill))
	}
}

// curves draws the distribution of times to first token: for every time, the share of
// requests with their first token by then.
func curves(b *bytes.Buffer, outcomes []outcome) {
	low, high := math.Inf(1), 0.0
	for _, o := range outcomes {
		if n := len(o.TTFT); n > 0 {
			low, high = min(low, max(1e-3, o.TTFT[n/100])), max(high, o.TTFT[n-1])
		}
	}
	if high <= low { // too little to plot: a decade around it
		low, high = max(1e-3, high/3), max(1e-3, high)*3
	}
	low, high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	x := func(v float64) float64 {
		share := (math.Log10(max(v, 1e-9)) - low) / (high - low)
		return left + max(0, share)*(plotWidth-left-right)
	}
	y := func(share float64) float64 { return top + (1-share)*(curvesHeight-top-bottom) }
	for share := 0.0; share <= 1; share += 0.25 {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n",
			left, y(share), plotWidth-right, left-6, y(share)+4, 100*share)
	}
	for e := low; e <= high; e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g s</text>`+"\n",
			x(v), top, curvesHeight-bottom, x(v), curvesHeight-bottom+18, v)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">requests with their first token within this time, %d replicas</text>`+"\n", left, curvesHeight-8, outcomes[0].replicas)
	for i, o := range outcomes {
		colour := colours[i%len(colours)]
		b.WriteString(`<path fill="none" stroke-width="2" stroke="` + colour + `" d="`)
		for k := range 201 { // finer than a visible pixel
			n := len(o.TTFT)
			if n == 0 {
				break
			}
			share := float64(k) / 200
			command := 'L'
			if k == 0 {
				command = 'M'
			}
			fmt.Fprintf(b, "%c%.1f %.1f", command, x(o.TTFT[int(share*float64(n-1))]), y(share))
		}
		fmt.Fprintf(b, `"/><text x="%d" y="%d" fill="%s">%s, mean %.2f s</text>`+"\n", plotWidth-right+8, top+16+18*i, colour, o.name, o.Mean)
	}
}
