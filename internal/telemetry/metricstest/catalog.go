package metricstest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Catalog is a prometheus.Registerer that records the registered metrics, to
// document them; it may pass them on. Tests use it in place of the
// registry. Not safe for concurrent use.
type Catalog struct {
	To      prometheus.Registerer // may be nil
	metrics map[string]Metric
}

// Metric is one documented metric.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// Register documents c's metrics.
func (c *Catalog) Register(m prometheus.Collector) error {
	if c.To != nil {
		if err := c.To.Register(m); err != nil {
			return err
		}
	}
	if c.metrics == nil {
		c.metrics = map[string]Metric{}
	}
	ch := make(chan *prometheus.Desc)
	go func() {
		m.Describe(ch)
		close(ch)
	}()
	for d := range ch {
		described, err := describe(d)
		if err != nil {
			return err
		}
		described.Type = typeOf(m, described.Name)
		c.metrics[described.Name] = described
	}
	return nil
}

// MustRegister is Register that panics.
func (c *Catalog) MustRegister(all ...prometheus.Collector) {
	for _, m := range all {
		if err := c.Register(m); err != nil {
			panic(err)
		}
	}
}

// Unregister takes m out of the registry; it stays documented.
func (c *Catalog) Unregister(m prometheus.Collector) bool {
	return c.To != nil && c.To.Unregister(m)
}

// Metrics returns the registered metrics, by name.
func (c *Catalog) Metrics() []Metric {
	var out []Metric
	for _, m := range c.metrics {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// description is the String form of a prometheus.Desc, its only view.
var description = regexp.MustCompile(`^Desc\{fqName: "(.*?)", help: ("(?:[^"\\]|\\.)*"), (?:unit: ".*?", )?constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}$`)

func describe(d *prometheus.Desc) (Metric, error) {
	m := description.FindStringSubmatch(d.String())
	if m == nil {
		return Metric{}, fmt.Errorf("metrics: cannot read the description %s", d)
	}
	help, err := strconv.Unquote(m[2])
	if err != nil {
		return Metric{}, fmt.Errorf("metrics: cannot read the description %s: %w", d, err)
	}
	out := Metric{Name: m[1], Help: help}
	for pair := range strings.SplitSeq(m[3], ",") {
		if name, _, ok := strings.Cut(pair, "="); ok {
			out.Labels = append(out.Labels, name)
		}
	}
	for name := range strings.SplitSeq(m[4], ",") {
		if name != "" {
			out.Labels = append(out.Labels, name)
		}
	}
	return out, nil
}

// typeOf derives a metric's type from its collector. A collector of several
// metrics has counters, which end in _total, and gauges.
func typeOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram" // the project has no summaries, which look the same
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// document writes a Markdown list of the metrics.
func document(w *bytes.Buffer, metrics []Metric) {
	w.WriteString("# Metrics\n\n`make docs` generates this page from the registered metrics, with their labels.\n" +
		"Each binary also has those of the Go runtime and of the process, `go_…` and `process_…`.\n\n")
	for _, m := range metrics {
		labels := ""
		for _, l := range m.Labels {
			labels += ", `" + l + "`"
		}
		fmt.Fprintf(w, "- `%s` (%s%s): %s\n", m.Name, m.Type, labels, m.Help)
	}
}
