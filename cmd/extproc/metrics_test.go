package main

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/telemetry"
	"warmroute/internal/telemetry/metricstest"
	"warmroute/render/testkit/must"
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
	must.Get(newRouter(c, slog.New(slog.DiscardHandler), catalog))(t)
	catalog.MustRegister(telemetry.Own("extproc", telemetry.Build{}, nil, new(telemetry.LogLimiter))...)
	metricstest.Docs(t, "../../docs/metrics.md", catalog.Metrics(), *update)
	metricstest.Lint(t, reg)
}
