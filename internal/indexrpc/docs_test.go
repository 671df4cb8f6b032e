package indexrpc

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"warmroute/index"
	"warmroute/render/testkit/must"
)

// TestWorkedExample runs the shell block of docs/protocol.md with the real
// grpcurl: after each command, every line behind "# =>" is part of its output.
func TestWorkedExample(t *testing.T) {
	bin := must.Get(filepath.Abs("../../.cache/bin"))(t)
	if _, err := os.Stat(filepath.Join(bin, "grpcurl")); err != nil {
		t.Fatalf("%v: run scripts/fetch-grpcurl.sh (make setup does)", err)
	}
	x := index.New(index.Options{})
	defer x.Close()
	s := New(x, Options{})
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	pages := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer pages.Close()

	script, expected := worked(t)
	script = strings.Replace(script, "index=127.0.0.1:9003\nmetrics=127.0.0.1:9090\n",
		"index="+l.Addr().String()+"\nmetrics="+strings.TrimPrefix(pages.URL, "http://")+"\n", 1)
	if expected < 10 || strings.Contains(script, ":9003") {
		t.Fatalf("%d expectations, script:\n%s", expected, script)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// worked is the document's block as a script that fails if an output lacks the
// document's text, and the number of checks.
func worked(t *testing.T) (script string, expected int) {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/protocol.md"))(t)
	_, after, _ := strings.Cut(string(text), "## Queries of the index")
	_, after, _ = strings.Cut(after, "```sh\n")
	block, _, found := strings.Cut(after, "```\n")
	if !found {
		t.Fatal("docs/protocol.md has no worked example")
	}
	var b strings.Builder
	for line := range strings.Lines(block) {
		want, is := strings.CutPrefix(line, "# => ")
		switch {
		case is:
			expected++
			quoted := "'" + strings.TrimSpace(want) + "'"
			b.WriteString("grep -qF -- " + quoted + " <<<\"$last\" || { echo lacks " + quoted + "; echo \"$last\"; exit 1; }\n")
		case strings.HasPrefix(line, "ask ") || strings.HasPrefix(line, "curl "):
			b.WriteString("last=$(" + strings.TrimSpace(line) + ")\n")
		default:
			b.WriteString(line)
		}
	}
	return b.String(), expected
}
