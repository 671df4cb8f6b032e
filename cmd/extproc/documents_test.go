package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// block is a fenced block of a document.
type block struct {
	file       string // from the root of the checkout
	line       int
	lang, text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// fence matches a fenced block, also inside a list, where it is indented.
var fence = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")

// documents yields every document for users, with its path in the checkout.
func documents(t *testing.T) iter.Seq2[string, []byte] {
	t.Helper()
	root := checkout.Root()
	return func(yield func(string, []byte) bool) {
		for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/decisions/*.md", "examples/*/*.md", "charts/*/*.md"} {
			files, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v", pattern, err)
			}
			for _, file := range files {
				text := must.Get(os.ReadFile(file))(t)
				if name, _ := filepath.Rel(root, file); !yield(name, text) {
					return
				}
			}
		}
	}
}

// blocks returns the fenced blocks of every document.
func blocks(t *testing.T) (out []block) {
	t.Helper()
	for name, text := range documents(t) {
		for _, m := range fence.FindAllSubmatchIndex(text, -1) {
			indent := string(text[m[2]:m[3]])
			body := strings.ReplaceAll("\n"+string(text[m[6]:m[7]]), "\n"+indent, "\n")[1:]
			out = append(out, block{name, bytes.Count(text[:m[0]], []byte("\n")) + 1, string(text[m[4]:m[5]]), body})
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d blocks found", len(out))
	}
	return out
}

// excluded matches the first line of a block that no test runs or loads, with the reason.
var excluded = regexp.MustCompile(`^# not (run|loaded) by the tests: (\S+ ){2,}`)

// runElsewhere are shell blocks with a test of their own, by a text in them.
var runElsewhere = map[string]string{
	"bin/vllmsim -listen":        "TestStandaloneRuns, TestPrefillDecodeRuns",
	"ask ReportCacheState '{":    "TestWorkedExample, in internal/indexrpc",
	"examples/standalone/envoy.": "TestExamplesLoad, which compares the file with what the command prints",
	"prefill-decode/envoy.yaml":  "TestExamplesLoad, too",
}

// TestBlocksOfDocumentsLoad: YAML is a configuration that `extproc check` accepts,
// JSON is valid JSON, and every other block is marked as a command or as text.
func TestBlocksOfDocumentsLoad(t *testing.T) {
	loaded := 0
	for _, b := range blocks(t) {
		switch b.lang {
		case "text", "sh":
		case "json":
			if !json.Valid([]byte(b.text)) {
				t.Errorf("%s: is no JSON", b)
			}
		case "yaml":
			if excluded.MatchString(b.text) {
				continue
			}
			var object struct {
				APIVersion string `yaml:"apiVersion"`
				Kind       string
			}
			if err := yaml.Unmarshal([]byte(b.text), &object); err == nil && object.APIVersion != "" && object.Kind != "" {
				continue // test/gateways applies it
			}
			if _, err := config.Parse(b.String(), []byte(b.text), defaultConfig(), os.LookupEnv); err != nil {
				t.Error(err)
			}
			loaded++
		default:
			t.Errorf("%s: %q is none of sh, yaml, json, text", b, b.lang)
		}
	}
	if loaded < 8 {
		t.Errorf("only %d configurations found", loaded)
	}
}

// TestTestsOfSecurityExist: every test that docs/security.md names, in any module.
func TestTestsOfSecurityExist(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/security.md"))(t)
	has := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	if err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." { // .cache, .git
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			has[string(m[1])] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(text, -1)
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !has[string(m[1])] {
			t.Errorf("docs/security.md names %s, which is no test", m[1])
		}
	}
}

// TestMakeTargetsExist: every make target that a document names.
func TestMakeTargetsExist(t *testing.T) {
	makefile := must.Get(os.ReadFile("../../Makefile"))(t)
	said := regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*)")
	found := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/decisions/*.md", "../../examples/*/*.md", "../../lab/bench/*.md"} {
		files := must.Get(filepath.Glob(pattern))(t)
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for _, m := range said.FindAllSubmatch(text, -1) {
				found++
				if !regexp.MustCompile(`(?m)^` + string(m[1]) + `:`).Match(makefile) {
					t.Errorf("%s: there is no make %s", file, m[1])
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d found", found)
	}
}

// TestShellBlocksRun runs every shell block of the documents that is not excluded
// and has no test of its own, unchanged except for addresses, with a simulated
// replica and a router. A block that ends in a server has run once that answers.
func TestShellBlocksRun(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	answers := map[string]string{ // by document: the final answer of its servers
		"docs/protocol.md": "http://127.0.0.1:9091/healthz",
	}
	ran := 0
	for _, b := range blocks(t) {
		if b.lang != "sh" || excluded.MatchString(b.text) || elsewhere(b) != "" {
			continue
		}
		ran++
		t.Run(strings.ReplaceAll(b.String(), "/", "_"), func(t *testing.T) { s.run(t, b, answers[b.file]) })
	}
	if ran < 5 {
		t.Errorf("only %d blocks ran", ran)
	}
}

func elsewhere(b block) string {
	for text, test := range runElsewhere {
		if strings.Contains(b.text, text) {
			return test
		}
	}
	return ""
}

// sandbox is a folder with the files that the documents' commands need, and addresses in
// place of theirs.
type sandbox struct {
	dir       string
	addresses *strings.Replacer
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	at := testenv.Addresses(t, 7)
	sim := testenv.StartSimulator(t)
	r, service := startRouter(t, fmt.Sprintf("fleet: {replicas: [{address: %q}]}\nindex_service: {listen: \"SERVICE\"}\n", sim.Addr))
	s := &sandbox{dir: t.TempDir()}
	s.addresses = strings.NewReplacer(
		"10.0.0.1:8000", sim.Addr, "http://127.0.0.1:8000", "http://"+sim.Addr, "10.0.0.2:8000", at[0],
		"10.0.0.1:5557", sim.Events, "127.0.0.1:5557", sim.Events, "10.0.0.1:5558", sim.Replay, "127.0.0.1:5558", sim.Replay,
		"10.0.0.9:9003", service, "localhost:9090", r.reloads.inForce().Admin.Listen, "127.0.0.1:9091", at[1], "localhost:8080", at[2],
		"policy/small-model", "policy/sim", "explain -config warmroute.yaml", "explain -config running.yaml", // a served model, the router that runs
		"make build\n", "", "timeout --preserve-status 60", "timeout --preserve-status 6",
	)
	for _, command := range []string{"warmroute/cmd/extproc", "warmroute/cmd/kvsub", "warmroute/lab/cmd/lab"} { // as make build does
		must.Get(testenv.Build(filepath.Join(s.dir, "bin"), command))(t)
	}
	replay := filepath.Join("examples", "replay")
	must.Do(t, os.CopyFS(filepath.Join(s.dir, replay), os.DirFS(filepath.Join(checkout.Root(), replay))))
	envoy := must.Get(testenv.EnvoyBinary())(t)
	must.Do(t, os.WriteFile(filepath.Join(s.dir, "bin/envoy"), []byte("#!/bin/sh\nexec "+envoy+" --use-dynamic-base-id --log-level error --concurrency 1 \"$@\"\n"), 0o700))
	// The README's own file, which names no ports, on free ones.
	var readme string
	for _, b := range blocks(t) {
		if b.file == "README.md" && b.lang == "yaml" && strings.Contains(b.text, "addresses are enough") {
			readme = b.text
		}
	}
	var c map[string]any
	must.Do(t, yaml.Unmarshal([]byte(s.addresses.Replace(readme)), &c))
	c["listen"], c["admin"], c["xds"], c["index_service"] = at[3], map[string]string{"listen": at[4]}, map[string]string{"listen": at[5]}, map[string]string{"listen": at[6]}
	c["envoy"] = map[string]string{"listen": at[2]}
	text := must.Get(yaml.Marshal(c))(t)
	for name, text := range map[string]string{"warmroute.yaml": string(text), "running.yaml": fmt.Sprintf("admin: {listen: %q}\n", r.reloads.inForce().Admin.Listen), "body.json": `{"model": "sim", "prompt": [1, 2, 3, 4], "max_tokens": 1}`} {
		must.Do(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	return s
}

// run runs a block until it ends well, or answers.
func (s *sandbox) run(t *testing.T, b block, answers string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "curl() { command curl -sSf \"$@\"; }\n"+s.addresses.Replace(b.text))
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	log := must.Get(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	must.Do(t, cmd.Start())
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			_ = kill() // processes that the block left running
			if err != nil || answers != "" {
				said, _ := os.ReadFile(log.Name())
				t.Fatalf("%s: %v\n%s", b, err, said)
			}
			return
		case <-time.After(50 * time.Millisecond):
			if answers == "" {
				continue
			}
			answer, err := http.Get(s.addresses.Replace(answers))
			if err != nil {
				continue
			}
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				_ = kill()
				<-ended
				return
			}
		}
	}
}
