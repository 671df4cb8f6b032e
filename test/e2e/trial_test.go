package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// trial is a stack whose requests are seen on both sides of Envoy.
type trial struct {
	*stack
	mu   sync.Mutex
	got  map[string]int // bodies that arrived
	hint int            // requests that arrived with a header of warmroute
	look atomic.Bool    // at the router's load whenever a request arrives
	most float64        // the most that it had in flight then
}

// startTrial starts three replicas, with these settings of the filter.
func startTrial(t *testing.T, settings string) *trial {
	t.Helper()
	tr := &trial{got: map[string]int{}}
	file := filepath.Join(t.TempDir(), "access.log")
	tr.stack = start(t, setup{
		replicas: 3, sim: steady(), config: trialConfig(settings), envoy: envoy.Options{AccessLog: file, UsageShare: new(100)},
		front: func(replica string) string { return tr.before(t, replica) },
	})
	tr.log = file
	return tr
}

func trialConfig(settings string) string {
	return "filter: {" + patient + ", " + settings + "}\n" + readAll
}

// before puts a proxy before a replica, which notes the requests that arrive.
func (tr *trial) before(t *testing.T, replica string) string {
	t.Helper()
	return inFront(t, replica, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPost && r.Header.Get("x-request-id") != "" { // through Envoy
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("a body that broke off: %v", err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			flight := 0.0
			if tr.look.Load() {
				flight = tr.inFlight(r.Context())
			}
			tr.mu.Lock()
			tr.got[string(body)]++
			tr.most = max(tr.most, flight)
			if r.Header.Get(envoy.HeaderDestination) != "" || r.Header.Get(envoy.HeaderRank) != "" {
				tr.hint++
			}
			tr.mu.Unlock()
		}
		pass.ServeHTTP(w, r)
	}).addr
}

// inFlight returns the requests that the router counts as load of a replica.
func (tr *trial) inFlight(ctx context.Context) (sum float64) {
	text, err := testenv.Get(ctx, "http://"+tr.admin+"/metrics")
	if err != nil {
		tr.t.Error(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "warmroute_in_flight_requests{") {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				tr.t.Error(err)
			}
			sum += n
		}
	}
	return sum
}

// hinted returns the number of requests that arrived with a hint.
func (tr *trial) hinted() int { tr.mu.Lock(); defer tr.mu.Unlock(); return tr.hint }

// say sends a chat of these words with headers, and returns the replica that served it.
func (tr *trial) say(words string, header ...string) string {
	tr.t.Helper()
	return tr.send(chatBody(tr.t, []message{{"user", strings.Repeat(words+" ", 200)}}, 1), header...)
}

// send sends a chat with headers, and returns the replica that served it.
func (tr *trial) send(body []byte, header ...string) string {
	tr.t.Helper()
	req, err := http.NewRequest(http.MethodPost, tr.envoy.URL+chatPath, bytes.NewReader(body))
	if err != nil {
		tr.t.Error(err)
		return ""
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tr.t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		tr.t.Errorf("%s, %v", resp.Status, err)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.got[string(body)]--; tr.got[string(body)] < 0 {
		tr.t.Errorf("a body arrived changed, or not at all: %.200s", body)
	}
	return resp.Header.Get(envoy.HeaderServed)
}

// entry is a line of Envoy's access log.
type entry struct {
	ID        string `json:"request_id"`
	Reason    string
	Withheld  string
	Hinted    string
	Served    string
	Status    int
	Prompt    *int    `json:"actual_prompt_tokens"`
	Cached    *int    `json:"actual_cached_tokens"`
	Headers   float64 `json:"first_byte_ms"`
	FirstByte float64 `json:"first_body_byte_us"`
	Duration  float64 `json:"duration_ms"`
}

// entries waits for n lines of Envoy's access log and returns them.
func (tr *trial) entries(n int) (out []entry) {
	tr.t.Helper()
	tr.until(fmt.Sprint("Envoy has logged ", n), func() bool { return strings.Count(readLog(tr.t, tr.log), "\n") >= n })
	for line := range strings.Lines(readLog(tr.t, tr.log)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			tr.t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	if len(out) != n {
		tr.t.Fatalf("Envoy has logged %d requests, %d were sent", len(out), n)
	}
	return out
}

// withheld returns how many hints the router's metrics count as withheld, by cause.
func (tr *trial) withheld() map[string]int {
	out := map[string]int{}
	for name, v := range tr.metrics() {
		if rest, ok := strings.CutPrefix(name, `warmroute_hints_withheld_total{`); ok && v > 0 {
			_, rest, _ = strings.Cut(rest, `withheld="`)
			cause, _, _ := strings.Cut(rest, `"`)
			out[cause] += int(v)
		}
	}
	return out
}

// set changes the settings of the filter while the router runs.
func (tr *trial) set(settings string) {
	tr.t.Helper()
	before := tr.metrics()[`warmroute_config_reloads_total{result="applied"}`]
	tr.writeConfig(trialConfig(settings))
	must.Do(tr.t, tr.extproc.Signal(syscall.SIGHUP))
	tr.until("the file is in force", func() bool {
		return tr.metrics()[`warmroute_config_reloads_total{result="applied"}`] > before
	})
}

// records returns the kept decisions.
func (tr *trial) records() []decision.Record {
	tr.t.Helper()
	var answer struct{ Decisions []decision.Record }
	must.Do(tr.t, json.Unmarshal([]byte(page(tr.t, "http://"+tr.admin+"/debug/explain?n=1000")), &answer))
	return answer.Decisions
}

// TestShadow: every request is decided, recorded and counted, and none gets a hint:
// Envoy balances one prompt over the replicas. No load and no prediction is booked for
// the replica that was chosen. Switched on while the router runs, the same prompt stays
// where it is cached; switched off, it does not.
func TestShadow(t *testing.T) {
	t.Parallel()
	const requests = 12
	tr := startTrial(t, "mode: shadow")
	tr.look.Store(true)
	served := map[string]int{}
	for range requests {
		served[tr.say("shadow")]++
		tr.settled()
	}
	if len(served) < 2 || tr.hinted() != 0 || tr.most != 0 {
		t.Errorf("one prompt was served by %v, %d requests had a hint, and %v were counted as load", served, tr.hinted(), tr.most)
	}
	reasons := tr.wantReasons(requests, 1)
	if w := tr.withheld(); w["shadow"] != requests || len(w) != 1 || reasons["warm"] < requests-2 {
		t.Errorf("withheld %v, reasons %v", w, reasons)
	}
	predicted := map[string]int{}
	for _, rec := range tr.records() {
		if rec.Withheld != decision.WithheldShadow || rec.Chosen == "" || len(rec.Candidates) != 3 {
			t.Errorf("record %+v", rec)
		}
		predicted[rec.ID] = rec.Predicted
	}
	for _, e := range tr.entries(requests) {
		if e.Hinted != "" || e.Withheld != "shadow" || e.Served == "" || predicted[e.ID] == 0 && e.Reason != "cold" {
			t.Errorf("Envoy's log: %+v, predicted %d", e, predicted[e.ID])
		}
	}
	for name, v := range tr.metrics() {
		if strings.HasPrefix(name, "warmroute_predicted_cached_tokens_total") && v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	tr.set("mode: route")
	served = map[string]int{}
	for range 10 {
		served[tr.say("hinted")]++
		tr.settled()
	}
	if len(served) != 1 || tr.hinted() != 10 || tr.most != 1 {
		t.Errorf("with hints one prompt was served by %v, %d requests had a hint", served, tr.hinted())
	}
	tr.set("mode: shadow")
	if tr.say("hinted"); tr.hinted() != 10 || tr.withheld()["shadow"] != requests+1 {
		t.Errorf("in shadow again: %d hints arrived, withheld %v", tr.hinted(), tr.withheld())
	}
}
