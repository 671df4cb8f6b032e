package telemetry

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Prefix begins the name of every metric but those of the Go runtime and of the process.
const Prefix = "warmroute_"

// Build is the version of the running binary.
type Build struct {
	Version   string // of the module, "(devel)" when built from a checkout
	Revision  string // of the version control, "" when not known
	Modified  bool   // the checkout had changes
	GoVersion string
	Tags      string // build tags, "" without
}

// A release's build stamps these two (-ldflags -X); elsewhere they are empty.
var released, commit string

// ReadBuild returns the facts that the release's build or the Go toolchain put
// into the binary.
func ReadBuild() Build {
	b := Build{Version: "(unknown)", GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "-tags":
			b.Tags = s.Value
		}
	}
	if released != "" {
		b.Version, b.Revision, b.Modified = released, commit, strings.HasSuffix(released, "-changed")
	}
	return b
}

func (b Build) String() string {
	s := b.Version + " " + b.GoVersion
	if b.Revision != "" {
		s = fmt.Sprintf("%s %.12s", s, b.Revision)
	}
	if b.Modified {
		s += " modified"
	}
	if b.Tags != "" {
		s += " tags " + b.Tags
	}
	return s
}

// PrintVersion writes the version if args request only that: "version",
// or "-version" with no value. It reports whether it did.
func PrintVersion(w io.Writer, binary string, args []string) bool {
	if len(args) != 1 || args[0] != "version" && args[0] != "-version" && args[0] != "--version" {
		return false
	}
	fmt.Fprintln(w, binary, ReadBuild())
	return true
}

// NewRegistry returns a registry with the metrics every binary has: the Go
// runtime's, the process's, build information, and the lines that log has lost and
// limit has left out.
func NewRegistry(binary string, b Build, log *LogWriter, limit *LogLimiter) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(Own(binary, b, log, limit)...)
	return r
}

// Own returns the collectors of this package, for the documentation.
func Own(binary string, b Build, log *LogWriter, limit *LogLimiter) []prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: Prefix + "build_info", Help: "1; the labels identify the build.",
		ConstLabels: prometheus.Labels{"binary": binary, "version": b.Version, "revision": b.Revision, "go_version": b.GoVersion},
	})
	info.Set(1)
	missing := func(cause string, lines func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: Prefix + "log_missing_lines_total", Help: "Lines that the log lacks: repeated too often, unwritable.",
			ConstLabels: prometheus.Labels{"cause": cause},
		}, func() float64 { return float64(lines()) })
	}
	return []prometheus.Collector{info, missing("unwritable", log.Lost), missing("repeated", limit.LeftOut)}
}
