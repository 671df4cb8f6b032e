package replay

import (
	"fmt"
	"io"
	"text/tabwriter"

	"warmroute/lab/simulator"
)

// month is the time to which costs are extrapolated, in seconds.
const month = 30 * 24 * 3600

// cost converts prefill into money.
type cost struct {
	hours float64 // GPU hours in a month for each second of prefill in the log
	price float64 // of a GPU hour; 0 = none
}

// cost is that of a log of the given length.
func (o Options) cost(seconds float64) cost {
	return cost{hours: float64(o.GPUs) / 3600 * month / seconds, price: o.Price}
}

// inMonth describes seconds of prefill in the log.
func (c cost) inMonth(seconds float64) string {
	s := fmt.Sprintf(", %s GPU hours in 30 days", short(seconds*c.hours))
	if c.price > 0 {
		s += ", " + short(seconds*c.hours*c.price) + " in money"
	}
	return s
}

// short writes a number with at least two digits that count.
func short(v float64) string {
	switch {
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.0f", v)
	case v >= 1 || v <= -1:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// terms says what GPU hours are counted by.
func (o Options) terms() string {
	s := fmt.Sprintf("%d GPU a replica", o.GPUs)
	if o.Price > 0 {
		s += fmt.Sprintf(", %g a GPU hour", o.Price)
	}
	return s
}

// engine returns the model of a replica's engine and a sentence about its speed, with the
// capacity and the speeds that a trace shows (0: none). Without a speed it takes an H100's, which
// no money can be counted by: it drops the price from o.
func (o *Options) engine(capacity int, seen pace) (simulator.Hardware, string) {
	hw := simulator.H100()
	h100, slower := 1/hw.PrefillToken, o.Slower
	prefill := "of an 8B model on an H100; set -prefill-rate"
	if o.Price > 0 {
		prefill += ", without which no cost is counted"
	}
	switch {
	case o.PrefillRate > 0:
		slower, prefill = h100/o.PrefillRate, "as set"
	case o.Slower != 1:
		prefill = "by -slower"
	case seen.prefill > 0:
		slower, prefill = h100/seen.prefill, fmt.Sprintf("the fastest tenth of %d recorded", seen.prompts)
		if seen.counted {
			prefill = fmt.Sprintf("the fastest tenth of %d times of 10 s, as the replicas counted", seen.prompts)
		}
	default:
		o.Price = 0
	}
	steps, decode := slower, "in proportion; set -decode-step"
	switch usual := hw.Step + hw.Weights; {
	case o.DecodeStep > 0:
		steps, decode = o.DecodeStep/1e3/usual, "as set"
	case o.Slower == 1 && seen.step > 0:
		steps, decode = seen.step/usual, fmt.Sprintf("the fastest tenth of %d recorded", seen.answers)
	}
	for _, v := range []*float64{&hw.PrefillToken, &hw.PrefillPair} {
		*v *= slower
	}
	for _, v := range []*float64{&hw.DecodeToken, &hw.Weights, &hw.Step, &hw.Sequence} {
		*v *= steps
	}
	switch {
	case o.Capacity > 0:
		hw.Capacity = o.Capacity
	case capacity > 0:
		hw.Capacity = capacity
	}
	return hw, fmt.Sprintf("a replica prefills %.0f tokens/s (%s), decodes a token in %s ms (%s) and caches %d tokens",
		1/hw.PrefillToken, prefill, short(1e3*(hw.Step+hw.Weights)), decode, hw.Capacity)
}

// lines writes sentences, until the first error.
type lines struct {
	to  io.Writer
	err error
}

func (l *lines) say(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.to, format+"\n", args...)
	}
}

// table writes the outcomes. Savings are against the first policy but this router.
func (o Options) table(out io.Writer, t *simulator.Trace, outcomes []outcome) error {
	c := o.cost(o.counted(t))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "replicas\tpolicy\tcached\tmean\tp50\tp90\tp99\tmost/mean work\tbusy\tprefill\tGPU hours\t")
	if o.Price > 0 {
		fmt.Fprint(w, "cost\t")
	}
	fmt.Fprintf(w, "against %s\t\n", o.Rivals[0])
	for _, r := range outcomes {
		fmt.Fprintf(w, "%d\t%s\t%.1f %%\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.2f\t%.0f %%\t%s s\t%s\t",
			r.replicas, r.name, 100*r.Hit, r.Mean, r.P50, r.P90, r.P99, r.Imbalance, 100*r.Busy, short(r.Prefill), short(r.Prefill*c.hours))
		if o.Price > 0 {
			fmt.Fprintf(w, "%s\t", short(r.Prefill*c.hours*o.Price))
		}
		fmt.Fprintf(w, "%+.0f %%\t\n", 100*(r.Prefill/base(outcomes, r.replicas, o.Rivals[0]).Prefill-1))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s := &lines{to: out}
	for _, n := range o.Replicas {
		b, own := base(outcomes, n, o.Rivals[0]), base(outcomes, n, ours)
		s.say("%d replicas: warmroute saves %s s of the prefill of %s%s", n, short(b.Prefill-own.Prefill), o.Rivals[0], c.inMonth(b.Prefill-own.Prefill))
	}
	return s.err
}

// counted returns the length of the part of a log that counts, in seconds.
func (o Options) counted(t *simulator.Trace) float64 {
	from := t.Requests[int(o.Warm*float64(len(t.Requests)))].At
	return max(1, (t.Requests[len(t.Requests)-1].At-from)/o.Speedup)
}

// base returns a policy's outcome with so many replicas.
func base(outcomes []outcome, replicas int, name string) outcome {
	for _, r := range outcomes {
		if r.replicas == replicas && r.name == name {
			return r
		}
	}
	return outcomes[0]
}
