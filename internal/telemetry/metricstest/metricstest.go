// Package metricstest checks metrics in tests: the naming rules of Prometheus,
// the prefix warmroute_, and that the documentation is up to date.
package metricstest

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/internal/telemetry"
)

// Lint fails t for every metric in g that breaks a naming rule, has no help or
// has another prefix than those of named, and if g has none at all. It sees collected
// metrics only: give vectors a value first.
func Lint(t testing.TB, g prometheus.Gatherer) {
	t.Helper()
	problems, err := testutil.GatherAndLint(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) == 0 {
		t.Error("no metrics")
	}
	for _, f := range families {
		if !named.MatchString(f.GetName()) {
			t.Errorf("%s: the name begins with none of %s", f.GetName(), named)
		}
		if f.GetHelp() == "" {
			t.Errorf("%s: no help", f.GetName())
		}
	}
}

// named matches the beginning of the project's metrics, and of those of the Go runtime and
// of the process.
var named = regexp.MustCompile(`^(` + telemetry.Prefix + `|go_|process_)`)

// Docs fails t if the file at path is not the documentation of metrics; with
// update it writes it.
func Docs(t testing.TB, path string, metrics []Metric, update bool) {
	t.Helper()
	if len(metrics) == 0 {
		t.Fatal("no metrics")
	}
	var want bytes.Buffer
	document(&want, metrics)
	if update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not up to date; make docs writes it", path)
	}
}
