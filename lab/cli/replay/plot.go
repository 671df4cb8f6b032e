package replay

import (
	"bytes"
	"fmt"
	"io"
	"math"
)

// The plot, in SVG user units.
const (
	plotWidth, plotHeight = 720, 420
	left, right           = 60, 150 // margins; the legend is on the right
	top, bottom           = 20, 45
)

// colours are Okabe and Ito's, which people with any colour vision can distinguish; the
// first is this router's.
var colours = [...]string{"#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#999999"}

// plot writes the distribution of times to first token: for every time, the share of
// requests with their first token by then.
func plot(to io.Writer, outcomes []outcome) error {
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
	y := func(share float64) float64 { return top + (1-share)*(plotHeight-top-bottom) }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	for share := 0.0; share <= 1; share += 0.25 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n",
			left, y(share), plotWidth-right, left-6, y(share)+4, 100*share)
	}
	for e := low; e <= high; e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g s</text>`+"\n",
			x(v), top, plotHeight-bottom, x(v), plotHeight-bottom+18, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">requests with their first token within this time</text>`+"\n", left, plotHeight-8)
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
			fmt.Fprintf(&b, "%c%.1f %.1f", command, x(o.TTFT[int(share*float64(n-1))]), y(share))
		}
		fmt.Fprintf(&b, `"/><text x="%d" y="%d" fill="%s">%s, mean %.2f s</text>`+"\n", plotWidth-right+8, top+16+18*i, colour, o.name, o.Mean)
	}
	b.WriteString("</svg>\n")
	_, err := to.Write(b.Bytes())
	return err
}
