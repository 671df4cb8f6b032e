package agents

import (
	"encoding/json"
	"fmt"
	"io"
)

// Cell is the outcome of one policy with one number of sessions.
type Cell struct {
	Policy    string  `json:"policy"`
	Sessions  int     `json:"sessions"`
	Completed int     `json:"completed"` // requests
	HitRate   float64 `json:"hit_rate"`  // cached of all tokens of prompts
	Mean      float64 `json:"ttft_mean"` // s from a client's first attempt on
	P95       float64 `json:"ttft_p95"`
	Max       float64 `json:"ttft_max"` // also of requests that still wait
	ShutOut   int     `json:"shut_out"` // clients that waited for more than half of the time that counts, without any answer in it
	GivenUp   int     `json:"given_up,omitempty"`
	Assigned  float64 `json:"assigned,omitempty"` // share of the turns that the router gave to their own session
	Makespan  float64 `json:"makespan,omitempty"` // s, of a fixed list
}

// Write writes a cell as a line, and before the first one of a table its head.
func (c *Cell) Write(w io.Writer, asJSON, first bool) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(c); err != nil {
			return fmt.Errorf("agents: %w", err)
		}
		return nil
	}
	if first {
		fmt.Fprintf(w, "%-8s %8s %9s %6s %9s %9s %9s %8s %8s %9s\n", "policy", "sessions", "completed", "hits", "TTFT mean", "p95", "max", "shut out", "given up", "makespan")
	}
	if _, err := fmt.Fprintf(w, "%-8s %8d %9d %5.1f%% %8.1fs %8.1fs %8.1fs %8d %8d %8.0fs\n", c.Policy, c.Sessions, c.Completed, 100*c.HitRate, c.Mean, c.P95, c.Max, c.ShutOut, c.GivenUp, c.Makespan); err != nil {
		return fmt.Errorf("agents: %w", err)
	}
	return nil
}
