package layout

import (
	"os/exec"
	"strings"
	"testing"
)

// list is what `go list` prints on its standard output. On its standard error
// it reports what it downloads.
func list(t *testing.T, args ...string) (lines []string) {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// deps lists everything pkg links.
func deps(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	set := map[string]bool{}
	for _, line := range list(t, "-deps", pkg) {
		set[line] = true
	}
	return set
}

// TestImportsPointOneWay: what a package must not link, directly or not. A
// trailing slash forbids the whole tree.
func TestImportsPointOneWay(t *testing.T) {
	const extProc = "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	tests := map[string][]string{
		"warmroute/prefixhash":               {"net", "os/exec", "google.golang.org/grpc", "warmroute/index", "warmroute/internal/"},
		"warmroute/index":                    {"net", "os/exec", "google.golang.org/grpc", "warmroute/internal/", "warmroute/filter"},
		"warmroute/envoy":                    {"warmroute/internal/", "warmroute/filter", "google.golang.org/grpc"},
		"warmroute/internal/decision/policy": {"net", "warmroute/index", "warmroute/filter"},
		"warmroute/internal/openai":          {"net", "warmroute/filter"},
		"warmroute/filter":                   {"warmroute/internal/admin", "warmroute/internal/kvevents", "warmroute/internal/feed", "warmroute/internal/vllmsim"},
		// The simulator and replay decide as the router does, without its server.
		"warmroute/internal/load":            {"google.golang.org/grpc", "warmroute/filter", "warmroute/internal/decision", "warmroute/internal/decision/"},
		"warmroute/internal/decision":        {"google.golang.org/grpc", extProc, "warmroute/filter", "warmroute/envoy", "warmroute/internal/tokens"},
		"warmroute/internal/peers":           {"github.com/nats-io/", "warmroute/filter"},
		"warmroute/internal/simulator/brain": {"github.com/nats-io/", "google.golang.org/grpc", extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/internal/cli/replay":      {"google.golang.org/grpc", extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/internal/extprocwire":     {"warmroute/index", "warmroute/filter", "warmroute/internal/decision"},
		"warmroute/cmd/kvsub":                {extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/cmd/extproc":              {"warmroute/internal/vllmsim", "warmroute/test/testenv"},
		"warmroute/internal/vllmsim": {"warmroute/prefixhash", "warmroute/index", "warmroute/filter",
			"warmroute/internal/kvevents"},
	}
	for pkg, banned := range tests {
		t.Run(strings.TrimPrefix(pkg, "warmroute/"), func(t *testing.T) {
			for dep := range deps(t, pkg) {
				for _, b := range banned {
					if dep == b || strings.HasSuffix(b, "/") && strings.HasPrefix(dep, b) {
						t.Errorf("%s links %s", pkg, dep)
					}
				}
			}
		})
	}
}

// TestKubernetesIsOnlyExtprocs: without the tag kube nothing links the client
// library of Kubernetes; with it only internal/kube imports that, and only
// cmd/extproc imports internal/kube.
func TestKubernetesIsOnlyExtprocs(t *testing.T) {
	client := func(pkg string) bool {
		return strings.HasPrefix(pkg, "k8s.io/") || strings.HasPrefix(pkg, "sigs.k8s.io/")
	}
	for dep := range deps(t, "warmroute/...") {
		if client(dep) {
			t.Errorf("%s is linked without the tag", dep)
		}
	}
	found := 0
	for _, line := range list(t, "-tags", "kube", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "warmroute/...") {
		pkg, imports, _ := strings.Cut(line, " ")
		for imported := range strings.FieldsSeq(imports) {
			switch {
			case client(imported) && pkg != "warmroute/internal/kube":
				t.Errorf("%s imports %s", pkg, imported)
			case client(imported):
				found++
			case imported == "warmroute/internal/kube" && pkg != "warmroute/cmd/extproc":
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
	if found == 0 {
		t.Error("internal/kube imports no client: this test looks at the wrong thing")
	}
}
