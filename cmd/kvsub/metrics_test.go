package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/kvevents"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/reporter"
	"warmroute/internal/telemetry/metricstest"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// TestAdminPages: a sidecar is ready once the index has its replica's blocks, not
// ready while the index is away, and counts both.
func TestAdminPages(t *testing.T) {
	local := testenv.Addresses(t, 2)
	one, at := serveIndex(t, local[0]), local[1]
	running(t, one.addr, "-admin", at).Publish(kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{11, 12}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2})
	page := func(path string) string {
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		raw := must.Get(io.ReadAll(resp.Body))(t)
		return fmt.Sprint(resp.StatusCode, "\n", string(raw))
	}
	defer http.DefaultClient.CloseIdleConnections()
	until := func(path string, want ...string) {
		t.Helper()
		testenv.Until(t, 20*time.Second, fmt.Sprintf("%s has %q", path, want), func() bool {
			got := page(path)
			return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(got, "\n"+w) })
		}, func() any { return page(path) })
	}
	until("/readyz", "ready\n")
	until("/healthz", "ok\n")
	until("/metrics", `warmroute_kv_connected{rank="0",replica="10.0.0.1:8000"} 1`+"\n", `warmroute_kv_batches_total{rank="0",replica="10.0.0.1:8000",result="applied"} 1`+"\n",
		"warmroute_kvsub_blocks 2\n", "warmroute_kvsub_behind 0\n", "warmroute_kvsub_report_errors_total 0\n")
	one.stop()
	until("/readyz", "not ready: the index has not accepted all reports")
	until("/metrics", "warmroute_kvsub_behind 1\n")
	two := serveIndex(t, one.addr)
	until("/readyz", "ready\n")
	matched(t, two.x, index.Scope{Model: "m", Scheme: "engine", BlockSize: 2}, []prefixhash.Key{11, 12}, 2)
}

// TestMetricsAreNamedAndDocumented: by Prometheus' rules, each in the manual.
func TestMetricsAreNamedAndDocumented(t *testing.T) {
	reports := reporter.New(nil, index.Holder{Replica: "r"}, reporter.Options{})
	subscriber := must.Get(kvevents.New(kvevents.Options{Replica: "r", Endpoint: "tcp://127.0.0.1:1", Model: "m", Scheme: "engine"}, reports))(t)
	reg := prometheus.NewRegistry()
	reg.MustRegister(gauges{index.Holder{Replica: "r"}, subscriber, reports, new(tally), nil})
	metricstest.Lint(t, reg)
	manual := must.Get(os.ReadFile("../../docs/protocol.md"))(t)
	for _, m := range series {
		if !strings.Contains(string(manual), fmt.Sprintf("| `%s` | %s |", m.name, m.help)) {
			t.Errorf("docs/protocol.md lacks | `%s` | %s |", m.name, m.help)
		}
	}
}
