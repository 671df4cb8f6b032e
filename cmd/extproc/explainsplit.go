package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
)

// printSplit prints what the prefill costs on the replica that answers, and on the best
// other one.
func printSplit(w io.Writer, s *decision.SplitRecord) error {
	if s.Reason == "" {
		return nil
	}
	fmt.Fprintf(w, "\nprefill and decode: %s\n", s.Reason)
	if s.Decode == "" {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "prefill on\tcached\tqueue\tprefill\thandover\tfor later ones\tfor answers\tcost\t")
	row := func(replica string, cached int, p *policy.Price) {
		fmt.Fprintf(t, "%s\t%d\t%.3f s\t%.3f s\t%.3f s\t%.3f\t%.3f\t%.4f\t\n", replica, cached, p.Queue, p.Prefill, p.Handover, p.Later, p.Harm, p.Total)
	}
	row(s.Decode, s.Held, &s.Local)
	if s.Prefill != "" {
		row(s.Prefill, s.Predicted, &s.Remote)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Reason == decision.SplitDone {
		fmt.Fprintf(w, "%d tokens of KV cache are moved to %s\n", s.Moves, s.Decode)
	}
	return nil
}
