package failopen

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

//go:embed testdata/load.lua
var script string

// wrk is the load of the wrk program: the requests of closedLoop, none of them
// streamed. It does not report when a request failed.
func wrk(t *testing.T, url string, d time.Duration, fault func()) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "load.lua")
	must.Do(t, os.WriteFile(file, []byte(script), 0o644))
	cmd := exec.Command("wrk", "-t1", fmt.Sprintf("-c%d", clients), fmt.Sprintf("-d%ds", int(d.Seconds())),
		fmt.Sprintf("--timeout=%ds", int(patience.Seconds())), "-s", file, url,
		"--", fmt.Sprint(groups), fmt.Sprint(prefix), fmt.Sprint(tail), fmt.Sprint(answer), fmt.Sprint(time.Now().UnixNano()%1_000_000_007))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("wrk is needed for the long form (Debian's package has that name): %v", err)
	}
	time.Sleep(d / 4)
	fault()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("wrk: %v\n%s", err, out.String())
	}
	var v struct {
		Requests, Status, Connect, Read, Write, Timeout int
		P50, P99, Max                                   int64 // µs
	}
	text := out.String()
	if err := json.Unmarshal([]byte(text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]), &v); err != nil {
		t.Fatalf("wrk: %v\n%s", err, text)
	}
	r := result{requests: v.Requests, failed: v.Status + v.Connect + v.Read + v.Write + v.Timeout, causes: map[string]int{},
		p50: time.Duration(v.P50) * time.Microsecond, p99: time.Duration(v.P99) * time.Microsecond, max: time.Duration(v.Max) * time.Microsecond}
	for name, n := range map[string]int{"status": v.Status, "connect": v.Connect, "read": v.Read, "write": v.Write, "timeout": v.Timeout} {
		if n > 0 {
			r.causes[name] = n
		}
	}
	if r.requests == 0 {
		t.Errorf("wrk sent nothing:\n%s", text)
	}
	return r
}
