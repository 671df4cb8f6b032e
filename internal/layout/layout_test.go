package layout

import (
	"os/exec"
	"strings"
	"testing"
)

// deps lists everything pkg links.
func deps(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", pkg, err, out)
	}
	set := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		set[strings.TrimSpace(line)] = true
	}
	return set
}

// TestImportsPointOneWay: what a package must not link, directly or not. A
// trailing slash forbids the whole tree.
func TestImportsPointOneWay(t *testing.T) {
	const extProc = "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	tests := map[string][]string{
		"warmroute/prefixhash":      {"net", "os/exec", "google.golang.org/grpc", "warmroute/index", "warmroute/internal/"},
		"warmroute/index":           {"net", "os/exec", "google.golang.org/grpc", "warmroute/internal/", "warmroute/filter"},
		"warmroute/envoy":           {"warmroute/internal/", "warmroute/filter", "google.golang.org/grpc"},
		"warmroute/internal/policy": {"net", "warmroute/index", "warmroute/filter"},
		"warmroute/internal/openai": {"net", "warmroute/filter"},
		"warmroute/filter":          {"warmroute/internal/admin", "warmroute/internal/kvevents", "warmroute/internal/feed", "warmroute/internal/vllmsim"},
		"warmroute/cmd/kvsub":       {extProc, "warmroute/filter", "warmroute/envoy"},
		"warmroute/cmd/extproc":     {"warmroute/internal/vllmsim", "warmroute/internal/testenv"},
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
