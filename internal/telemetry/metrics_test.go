package telemetry_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/telemetry"
	"warmroute/internal/telemetry/metricstest"
	"warmroute/render/testkit/must"
)

func TestRegistryIsClean(t *testing.T) {
	r := telemetry.NewRegistry("extproc", telemetry.ReadBuild(), nil, new(telemetry.LogLimiter))
	metricstest.Lint(t, r)
	families := must.Get(r.Gather())(t)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	all := strings.Join(names, "\n")
	for _, want := range []string{"warmroute_build_info", "warmroute_log_missing_lines_total", "go_goroutines", "process_cpu_seconds_total"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestBuild(t *testing.T) {
	b := telemetry.ReadBuild()
	if b.Version == "" || !strings.HasPrefix(b.GoVersion, "go") {
		t.Errorf("%+v", b)
	}
	if s := (telemetry.Build{Version: "v1", GoVersion: "go1", Revision: "0123456789abcdef", Modified: true}).String(); s != "v1 go1 0123456789ab modified" {
		t.Error(s)
	}
}

// collector reports two metrics of different types.
type collector struct{}

func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- prometheus.NewDesc("warmroute_b_total", `A "quoted" | help, with {braces}: and commas.`, []string{"x", "y"}, nil)
	ch <- prometheus.NewDesc("warmroute_c", "C.", nil, prometheus.Labels{"k": "v"})
}
func (collector) Collect(chan<- prometheus.Metric) {}

func TestCatalog(t *testing.T) {
	var c metricstest.Catalog
	c.To = prometheus.NewRegistry()
	c.MustRegister(collector{}, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "warmroute_a_seconds", Help: "A."}, []string{"z"}))
	if err := c.Register(collector{}); err == nil {
		t.Error("what the registry refuses is accepted")
	}
	want := []metricstest.Metric{
		{Name: "warmroute_a_seconds", Type: "histogram", Help: "A.", Labels: []string{"z"}},
		{Name: "warmroute_b_total", Type: "counter", Help: `A "quoted" | help, with {braces}: and commas.`, Labels: []string{"x", "y"}},
		{Name: "warmroute_c", Type: "gauge", Help: "C.", Labels: []string{"k"}},
	}
	if got := c.Metrics(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	path := filepath.Join(t.TempDir(), "metrics.md")
	metricstest.Docs(t, path, c.Metrics(), true)
	metricstest.Docs(t, path, c.Metrics(), false)
	out, err := os.ReadFile(path)
	if row := "- `warmroute_b_total` (counter, `x`, `y`): A \"quoted\" | help, with {braces}: and commas.\n"; err != nil || !strings.Contains(string(out), row) {
		t.Errorf("no row %s in\n%s (%v)", row, out, err)
	}
}

// recorder is a testing.TB that only notes whether something failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Error(...any)          { r.failed = true }

// The helpers fail when they should.
func TestLintFails(t *testing.T) {
	for name, c := range map[string]prometheus.Collector{
		"":          nil,
		"prefix":    prometheus.NewGauge(prometheus.GaugeOpts{Name: "other", Help: "h"}),
		"no help":   prometheus.NewGauge(prometheus.GaugeOpts{Name: "warmroute_x"}),
		"no _total": prometheus.NewCounter(prometheus.CounterOpts{Name: "warmroute_x", Help: "h"}),
	} {
		r := prometheus.NewRegistry()
		if c != nil {
			r.MustRegister(c)
		}
		rec := &recorder{TB: t}
		metricstest.Lint(rec, r)
		if !rec.failed {
			t.Errorf("%q passes", name)
		}
	}
	path := filepath.Join(t.TempDir(), "metrics.md")
	metrics := []metricstest.Metric{{Name: "warmroute_x"}}
	metricstest.Docs(t, path, metrics, true)
	rec := &recorder{TB: t}
	metricstest.Docs(rec, path, []metricstest.Metric{{Name: "warmroute_y"}}, false)
	if !rec.failed {
		t.Error("outdated documentation passes")
	}
}
