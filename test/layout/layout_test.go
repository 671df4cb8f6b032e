package layout

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// list returns the output of `go list` about the last argument, a package, in its module.
func list(t *testing.T, args ...string) (lines []string) {
	t.Helper()
	return listIn(t, filepath.Join("../..", strings.TrimPrefix(moduleOf(args[len(args)-1]), "warmroute")), args...)
}

// listIn returns the standard output of `go list` in a folder. On standard error `go
// list` reports its downloads.
func listIn(t *testing.T, folder string, args ...string) (lines []string) {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = folder
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

// TestImportsPointOneWay: the packages that a package must not link, directly or not. A
// trailing slash forbids the whole tree.
func TestImportsPointOneWay(t *testing.T) {
	const extProc = "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	tests := map[string][]string{
		"warmroute/prefixhash":               {"net", "os/exec", "google.golang.org/grpc", "warmroute/index", "warmroute/internal/"},
		"warmroute/index":                    {"net", "os/exec", "google.golang.org/grpc", "warmroute/internal/", "warmroute/filter"},
		"warmroute/envoy":                    {"warmroute/internal/", "warmroute/filter", "google.golang.org/grpc"},
		"warmroute/internal/certs":           {"warmroute/index", "warmroute/prefixhash", "google.golang.org/grpc"},
		"warmroute/internal/decision/policy": {"net", "warmroute/index", "warmroute/filter"},
		"warmroute/render/openai":            {"net", "warmroute/filter"},
		"warmroute/filter":                   {"warmroute/internal/admin", "warmroute/internal/kvevents", "warmroute/internal/feed", "warmroute/lab/vllmsim"},
		// The simulator and replay decide as the router does, without its server.
		"warmroute/internal/load": {"google.golang.org/grpc", "warmroute/filter", "warmroute/internal/decision", "warmroute/internal/decision/history", "warmroute/internal/decision/why"},
		"warmroute/internal/decision": {"google.golang.org/grpc", extProc, "warmroute/filter", "warmroute/envoy", "warmroute/internal/tokens",
			"warmroute/render"},
		"warmroute/internal/peers":       {"github.com/nats-io/", "warmroute/filter"},
		"warmroute/lab/simulator/brain":  {"github.com/nats-io/", "google.golang.org/grpc", extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/lab/cli/replay":       {"google.golang.org/grpc", extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/internal/extprocwire": {"warmroute/index", "warmroute/filter", "warmroute/internal/decision"},
		"warmroute/cmd/kvsub":            {extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/cmd/extproc":          {"warmroute/lab/vllmsim", "warmroute/internal/testenv"},
		"warmroute/lab/vllmsim": {"warmroute/prefixhash", "warmroute/index", "warmroute/filter",
			"warmroute/internal/kvevents"},
	}
	for pkg, banned := range tests {
		t.Run(strings.TrimPrefix(pkg, "warmroute/"), func(t *testing.T) {
			for dep := range deps(t, pkg) {
				if dep == "warmroute/internal/certs" || dep == "warmroute/internal/problems" { // the settings of TLS, and the list of problems of settings
					continue
				}
				for _, b := range banned {
					if dep == b || strings.HasSuffix(b, "/") && strings.HasPrefix(dep, b) {
						t.Errorf("%s links %s", pkg, dep)
					}
				}
			}
		})
	}
}

// Of the renderer, other modules import its API. The router's code that computes ids and
// reads its configuration has the models; any may read bodies and bound work.
var (
	rendererAPI = []string{"warmroute/render", "warmroute/render/openai", "warmroute/render/work"}
	rendersHere = []string{"warmroute/internal/tokens", "warmroute/cmd/extproc"}
)

// mayImport reports whether a package may import one of another module, in its code or in
// its tests alone.
func mayImport(pkg, imported string, tests bool) bool {
	from, to := moduleOf(pkg), moduleOf(imported)
	switch {
	case from == "warmroute/render":
		return false
	case strings.HasPrefix(imported, "warmroute/render/testkit/"):
		return tests || from == "warmroute/lab" || from == "warmroute/test" || strings.HasPrefix(pkg, "warmroute/internal/testenv")
	case to == "warmroute/render" && from == "warmroute" && imported == to:
		return tests || slices.Contains(rendersHere, pkg)
	case to == "warmroute/render":
		return slices.Contains(rendererAPI, imported)
	case from == "warmroute/lab":
		return to == "warmroute"
	}
	return from == "warmroute/test"
}

// TestModulesPointOneWay: the router, the laboratory and the tests take from the renderer
// through its API, and nothing takes from the laboratory or the tests but these two; tests
// of a module are held to the same.
func TestModulesPointOneWay(t *testing.T) {
	for own, folder := range map[string]string{
		"warmroute": "../..", "warmroute/render": "../../render", "warmroute/lab": "../../lab", "warmroute/test": "..",
	} {
		found := 0
		for _, line := range listIn(t, folder, "-tags", "kube", "-f", `{{.ImportPath}}:{{join .Imports " "}}:{{join .TestImports " "}} {{join .XTestImports " "}}`, "./...") {
			pkg, rest, _ := strings.Cut(line, ":")
			code, tests, _ := strings.Cut(rest, ":")
			for imported := range strings.FieldsSeq(code + " " + tests) {
				if moduleOf(imported) == "" || moduleOf(imported) == own {
					continue
				}
				found++
				if !mayImport(pkg, imported, !slices.Contains(strings.Fields(code), imported)) {
					t.Errorf("%s imports %s", pkg, imported)
				}
			}
		}
		if found == 0 && own != "warmroute/render" {
			t.Errorf("%s imports nothing of other modules: this test looks at the wrong thing", own)
		}
	}
}

// moduleOf is the module of one of the project's packages, "" of another's.
func moduleOf(pkg string) string {
	if pkg != "warmroute" && !strings.HasPrefix(pkg, "warmroute/") {
		return ""
	}
	for _, module := range []string{"warmroute/render", "warmroute/lab", "warmroute/test"} {
		if pkg == module || strings.HasPrefix(pkg, module+"/") {
			return module
		}
	}
	return "warmroute"
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
