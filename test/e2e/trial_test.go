package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/render/testkit/must"
)

// trial is a stack that counts the requests that arrive with a hint.
type trial struct {
	*stack
	hinted atomic.Int64
}

// before puts a proxy before a replica, which counts hints.
func (tr *trial) before(t *testing.T, replica string) string {
	t.Helper()
	return inFront(t, replica, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Header.Get(envoy.HeaderDestination) != "" || r.Header.Get(envoy.HeaderRank) != "" {
			tr.hinted.Add(1)
		}
		pass.ServeHTTP(w, r)
	}).addr
}

// trialConfig has the filter in a mode.
func trialConfig(mode string) string {
	return "filter: {" + patient + ", mode: " + mode + "}\n" + readAll
}

// set changes the mode of the filter while the router runs.
func (tr *trial) set(mode string) {
	tr.t.Helper()
	applied := func() float64 { return tr.metrics()[`warmroute_config_reloads_total{result="applied"}`] }
	before := applied()
	tr.writeConfig(trialConfig(mode))
	must.Do(tr.t, tr.extproc.Signal(syscall.SIGHUP))
	tr.until("the file is in force", func() bool { return applied() > before })
}

// say sends a chat of these words so many times, and returns how many each replica served.
func (tr *trial) say(words string, times int) map[string]int {
	tr.t.Helper()
	served := map[string]int{}
	for range times {
		a := tr.chat([]message{{"user", strings.Repeat(words+" ", 200)}}, 1)
		if a.status != http.StatusOK {
			tr.t.Errorf("status %d", a.status)
		}
		served[a.replica]++
		tr.settled()
	}
	return served
}

// withheld returns how many hints the router's metrics count as withheld for a cause, and for any.
func (tr *trial) withheld(cause string) (of, all int) {
	tr.t.Helper()
	for name, v := range tr.metrics() {
		if strings.HasPrefix(name, "warmroute_hints_withheld_total{") {
			all += int(v)
			if strings.Contains(name, `withheld="`+cause+`"`) {
				of += int(v)
			}
		}
	}
	return of, all
}

// TestShadow: every request is decided, recorded and counted, and none gets a hint: Envoy balances one
// prompt over the replicas, and its access log says so. Switched on while the router runs, the same
// prompt stays where it is cached; switched off, it has no hint again.
func TestShadow(t *testing.T) {
	t.Parallel()
	const requests = 12
	tr, log := new(trial), filepath.Join(t.TempDir(), "access.log")
	tr.stack = start(t, setup{
		replicas: 3, sim: steady(), config: trialConfig("shadow"), envoy: envoy.Options{AccessLog: log, UsageShare: new(100)},
		front: func(replica string) string { return tr.before(t, replica) },
	})
	if served := tr.say("shadow", requests); len(served) < 2 || tr.hinted.Load() != 0 {
		t.Errorf("one prompt was served by %v, %d requests had a hint", served, tr.hinted.Load())
	}
	reasons := tr.wantReasons(requests, 1)
	if of, all := tr.withheld("shadow"); of != requests || all != requests || reasons["warm"] < requests-2 {
		t.Errorf("withheld %d and %d, reasons %v", of, all, reasons)
	}
	var kept struct{ Decisions []decision.Record }
	tr.page("/debug/explain?n=1000", &kept)
	predicted := map[string]int{}
	for _, rec := range kept.Decisions {
		if rec.Withheld != decision.WithheldShadow || rec.Chosen == "" || len(rec.Candidates) != 3 {
			t.Errorf("record %+v", rec)
		}
		predicted[rec.ID] = rec.Predicted
	}
	tr.until("Envoy has logged all", func() bool { return strings.Count(readLog(t, log), "\n") >= requests })
	for line := range strings.Lines(readLog(t, log)) {
		var e struct {
			ID                               string `json:"request_id"`
			Reason, Withheld, Hinted, Served string
		}
		must.Do(t, json.Unmarshal([]byte(line), &e))
		if e.Hinted != "" || e.Withheld != "shadow" || e.Served == "" || predicted[e.ID] == 0 && e.Reason != "cold" {
			t.Errorf("Envoy's log: %+v, predicted %d", e, predicted[e.ID])
		}
	}
	tr.set("route")
	if served := tr.say("hinted", 10); len(served) != 1 || tr.hinted.Load() != 10 {
		t.Errorf("with hints one prompt was served by %v, %d requests had a hint", served, tr.hinted.Load())
	}
	tr.set("shadow")
	tr.say("hinted", 1)
	if of, _ := tr.withheld("shadow"); tr.hinted.Load() != 10 || of != requests+1 {
		t.Errorf("in shadow again: %d hints arrived, %d are withheld", tr.hinted.Load(), of)
	}
}
