package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/tracefile"
)

// newTraceFile opens the trace file, if the configuration names one.
func (r *router) newTraceFile(reg prometheus.Registerer) (*tracefile.Writer, error) {
	f := r.c.Filter
	if f.TraceFile == "" {
		return nil, nil //nolint:nilnil // no configured file is no error
	}
	return tracefile.New(tracefile.Options{
		Path: f.TraceFile, Bytes: f.TraceFileBytes, Files: f.TraceFiles, Fleet: r.tracedFleet, Log: r.log,
	}, reg)
}

// tracedFleet describes the ready replicas for the trace file.
func (r *router) tracedFleet() (out []tracefile.Replica) {
	for _, v := range r.fleet.Snapshot().Replicas {
		if !v.Ready || len(v.Models) == 0 {
			continue
		}
		out = append(out, tracefile.Replica{
			Addr: v.Addr, Model: v.Models[0].Base, BlockTokens: v.BlockSize, Blocks: v.Blocks, Ranks: len(v.Ranks),
		})
	}
	return out
}
