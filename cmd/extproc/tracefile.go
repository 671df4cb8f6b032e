package main

import (
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/tracefile"
)

// newTraceFile opens the trace file, if the configuration names one.
func newTraceFile(f FilterConfig, snapshot func() *fleet.Snapshot, log *slog.Logger, reg prometheus.Registerer) *tracefile.Writer {
	if f.TraceFile == "" {
		return nil
	}
	return tracefile.New(tracefile.Options{
		Path: f.TraceFile, Bytes: f.TraceFileBytes, Log: log,
		Fleet: func() []tracefile.Replica { return traced(snapshot()) }, Prefills: prefills(snapshot),
	}, reg)
}

// traced describes the ready replicas for the trace file.
func traced(s *fleet.Snapshot) (out []tracefile.Replica) {
	for _, v := range s.Replicas {
		if !v.Ready || len(v.Models) == 0 {
			continue
		}
		out = append(out, tracefile.Replica{
			Addr: v.Addr, Model: v.Models[0].Base, BlockTokens: v.BlockSize, Blocks: v.Blocks, Ranks: len(v.Ranks),
		})
	}
	return out
}

// prefilled has a replica's counters.
type prefilled struct {
	joined            uint64
	tokens            float64
	seconds, requests float64
}

// prefills returns a function that returns the prefills since its last call, by base model. A replica
// whose counters have gone back, or that has joined since, counts from the next call on.
func prefills(snapshot func() *fleet.Snapshot) func() []tracefile.Prefilled {
	var last map[string]prefilled
	return func() (out []tracefile.Prefilled) {
		all := map[string]prefilled{}
		for _, v := range snapshot().Replicas {
			if !v.Ready || len(v.Models) == 0 || len(v.Load) == 0 {
				continue
			}
			now := prefilled{joined: v.Joined}
			for i := range v.Load {
				l := &v.Load[i]
				now.tokens += l.Computed()
				now.seconds, now.requests = now.seconds+l.Prefill.Seconds, now.requests+l.Prefill.Requests
			}
			all[v.Addr] = now
			was, known := last[v.Addr]
			n := tracefile.Prefilled{Model: v.Models[0].Base, Seconds: now.seconds - was.seconds, Tokens: int(now.tokens - was.tokens), Requests: int(now.requests - was.requests)}
			if !known || was.joined != now.joined || n.Seconds <= 0 || n.Tokens <= 0 || n.Requests <= 0 {
				continue
			}
			if i := slices.IndexFunc(out, func(o tracefile.Prefilled) bool { return o.Model == n.Model }); i >= 0 {
				o := &out[i]
				o.Seconds, o.Tokens, o.Requests = o.Seconds+n.Seconds, o.Tokens+n.Tokens, o.Requests+n.Requests
			} else {
				out = append(out, n)
			}
		}
		last = all
		return out
	}
}
