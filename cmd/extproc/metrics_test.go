package main

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/telemetry"
	"warmroute/internal/telemetry/metricstest"
)

//go:generate go test . -run "AreDocumented|IsDocumented" -update

// TestMetricsAreDocumented: docs/metrics.md lists the router's metrics, and
// every name follows the rules.
func TestMetricsAreDocumented(t *testing.T) {
	reg := prometheus.NewRegistry()
	catalog := &metricstest.Catalog{To: reg}
	c := defaultConfig()
	c.Tokens.Models = []ModelConfig{{ID: "m"}}
	c.Tracing.Endpoint = "127.0.0.1:4317"
	c.Filter.TraceFile = filepath.Join(t.TempDir(), "trace.jsonl")
	if _, err := newRouter(c, slog.New(slog.DiscardHandler), catalog); err != nil {
		t.Fatal(err)
	}
	catalog.MustRegister(telemetry.Own("extproc", telemetry.Build{}, nil, nil)...)
	metricstest.Docs(t, "../../docs/metrics.md", catalog.Metrics(), *update)
	metricstest.Lint(t, reg)
}
