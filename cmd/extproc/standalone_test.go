package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// TestStandaloneRuns runs the shell block of examples/standalone as it is
// written, in a copy of the example on free ports: four replicas answer, and the
// second request of the same prompt finds its prefix on the replica of the first.
func TestStandaloneRuns(t *testing.T) {
	t.Parallel()
	out := runExample(t, "examples/standalone", func(script string) string {
		asked := strings.Index(script, "curl -si ")
		return script + "echo\necho again\n" + script[asked:]
	})
	first, again, _ := strings.Cut(out, "again\n")
	a, b := answered(t, first), answered(t, again)
	if a.reason != "cold" || b.reason != "warm" || a.served != b.served || a.served == "" {
		t.Errorf("first %+v, again %+v: want the second warm, where the first went\n%s", a, b, out)
	}
	if a.candidates != 4 {
		t.Errorf("%d replicas were candidates, the block starts 4", a.candidates)
	}
}

// TestPrefillDecodeRuns runs the shell block of examples/prefill-decode as it is written:
// a long prompt stays on one replica at rest, and is split under load.
func TestPrefillDecodeRuns(t *testing.T) {
	out := runExample(t, "examples/prefill-decode", func(script string) string { return script })
	var reasons []string
	for _, m := range regexp.MustCompile(`"split":\s*\{\s*"reason":\s*"(\w+)"`).FindAllStringSubmatch(out, -1) {
		reasons = append(reasons, m[1])
	}
	if strings.Join(reasons, " ") != "local_idle split" {
		t.Errorf("reasons %q\n%s", reasons, out)
	}
	pulled := 0.0
	for _, m := range regexp.MustCompile(`external_prefix_cache_hits_total\{.*\} (\S+)`).FindAllStringSubmatch(out, -1) {
		v, _ := strconv.ParseFloat(m[1], 64)
		pulled += v
	}
	if pulled < 1000 {
		t.Errorf("%v tokens were pulled\n%s", pulled, out)
	}
}

// runExample runs the first shell block of an example's README, after a change, in a copy
// of the example on free ports, and returns what it prints.
func runExample(t *testing.T, example string, change func(script string) string) string {
	t.Helper()
	root, all := checkout.Root(), blocks(t)
	first := slices.IndexFunc(all, func(b block) bool { return b.lang == "sh" && b.file == example+"/README.md" })
	if first < 0 {
		t.Fatal("no shell block")
	}
	onFreePorts := free(t)
	dir := t.TempDir()
	for _, file := range []string{example + "/warmroute.yaml", example + "/envoy.yaml"} {
		text := must.Get(os.ReadFile(filepath.Join(root, file)))(t)
		must.Do(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755))
		// On a busy machine Envoy would go on without the router, and the router without token ids.
		patient := strings.Replace(string(text), "message_timeout: 0.2s", "message_timeout: 30s", 1)
		if strings.HasSuffix(file, "/warmroute.yaml") {
			patient += "filter: {token_budget: 20s}\n"
			// The file leaves these at their defaults, which another router on the machine may have.
			patient += "index_service: {listen: \"127.0.0.1:0\"}\nxds: {listen: \"127.0.0.1:0\"}\n"
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(onFreePorts(patient)), 0o600))
	}
	for _, command := range []string{"cmd/extproc", "lab/cmd/vllmsim"} { // as make build does
		must.Get(testenv.Build(filepath.Join(dir, "bin"), "warmroute/"+command))(t)
	}
	script, isThere := strings.CutPrefix(all[first].text, "make build\n")
	if !isThere {
		t.Fatalf("the block does not begin with make build:\n%s", all[first].text)
	}
	before, _, _ := strings.Cut(script, "127.0.0.1:8080/")
	if !strings.Contains(before, "| grep -q health_flags::healthy; do") {
		t.Fatalf("the block asks before Envoy sees the router, so that a request can go past it:\n%s", before)
	}
	script = change(strings.ReplaceAll(onFreePorts(unrolled(script)), "scripts/", root+"/scripts/"))

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script+"\nkill $(jobs -p)\n")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that the block started
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), errs.String())
	}
	return out.String()
}

// free moves the example's fixed ports to free ones, the same in every text.
func free(t *testing.T) func(string) string {
	t.Helper()
	fixed := []string{"9002", "9006", "9090", "9901", "8080", "8001", "8002", "8003", "8004", "5601", "5602", "5603", "5604", "5701", "5702", "5703", "5704"}
	ports := must.Get(testenv.FreePorts(len(fixed)))(t)
	var pairs []string
	for i, port := range fixed {
		free := fmt.Sprint(ports[i])
		pairs = append(pairs, "127.0.0.1:"+port, "127.0.0.1:"+free, "port_value: "+port, "port_value: "+free)
	}
	return strings.NewReplacer(pairs...).Replace
}

// unrolled is a script whose loop over $i is written out, so that its ports can be seen.
func unrolled(script string) string {
	loop := regexp.MustCompile(`(?ms)^for i in ([0-9 ]+); do\n(.*?)^done\n`)
	return loop.ReplaceAllStringFunc(script, func(s string) string {
		m := loop.FindStringSubmatch(s)
		var b strings.Builder
		for _, i := range strings.Fields(m[1]) {
			b.WriteString(strings.ReplaceAll(m[2], "$i", i))
		}
		return b.String()
	})
}

// reply is the content of an answer and of the record of its decision.
type reply struct {
	served, reason string
	candidates     int
}

func answered(t *testing.T, out string) (r reply) {
	t.Helper()
	if m := regexp.MustCompile(`(?i)x-warmroute-served: (\S+)`).FindStringSubmatch(out); m != nil {
		r.served = m[1]
	}
	at := max(0, strings.LastIndex(out, `{"decisions"`))
	var explained struct {
		Decisions []struct {
			Reason     string
			Candidates []any
		}
	}
	if err := json.NewDecoder(strings.NewReader(out[at:])).Decode(&explained); err != nil || len(explained.Decisions) == 0 {
		t.Fatalf("%v: no record in\n%s", err, out)
	}
	r.reason, r.candidates = explained.Decisions[0].Reason, len(explained.Decisions[0].Candidates)
	return r
}
