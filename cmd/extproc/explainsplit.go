package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
)

// printSplit prints what the prefill costs on the replica that answers, and on the best
// other one, and what a split took.
func printSplit(w io.Writer, rec *decision.Record) error {
	s := &rec.Split
	if s.Reason == "" {
		return nil
	}
	fmt.Fprintf(w, "\nprefill and decode: %s\n", s.Reason)
	if s.Decode == "" {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "prefill on\tcached\tqueue\tprefill\thandover\tdecoding\tfor later ones\tfor answers\tcost\t")
	row := func(replica string, cached int, p *policy.Price) {
		fmt.Fprintf(t, "%s\t%d\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.3f\t%.3f\t%.4f\t\n", replica, cached, p.Queue, p.Prefill, p.Handover, p.Decoding, p.Later, p.Harm, p.Total)
	}
	row(s.Decode, s.Held, &s.Local)
	if s.Prefill != "" {
		row(s.Prefill, s.Predicted, &s.Remote)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Reason == decision.SplitDone {
		fmt.Fprintf(w, "%s computes the prompt, %d tokens of its KV cache are moved to %s, which answers\n", s.Prefill, s.Moves, s.Decode)
	}
	printTimes(w, rec)
	return nil
}

// printTimes prints what was seen of a split after the decision.
func printTimes(w io.Writer, rec *decision.Record) {
	s := &rec.Split
	if t := s.Times; t != (decision.SplitTimes{}) {
		fmt.Fprintf(w, "decision %s", rec.Took.Round(time.Microsecond))
		for _, part := range []struct {
			name    string
			seconds float64
		}{{"prefill computed after", t.Computed}, {"answered after", t.Answered}, {"KV cache moved in", t.Moved}} {
			if part.seconds > 0 {
				fmt.Fprintf(w, ", %s %.3f s", part.name, part.seconds)
			}
		}
		if a := rec.Answered; a != nil && a.FirstByte > 0 && t.Answered > 0 {
			fmt.Fprintf(w, ", first byte of the answer %.3f s after the prefill's answer", max(0, a.FirstByte-rec.Took.Seconds()-t.Answered))
		}
		fmt.Fprintln(w)
	}
	if s.Hit != nil {
		fmt.Fprintf(w, "%s counted %d cached tokens, %d were predicted\n", s.Prefill, *s.Hit, s.Predicted)
	}
}
