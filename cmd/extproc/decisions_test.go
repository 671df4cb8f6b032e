package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/render/testkit/must"
)

// policyServer is a router's pages of settings and pressure, and its log.
func policyServer(t *testing.T) (*router, func(method, target, body string) (int, string), *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	c := defaultConfig()
	c.Policy.Models = map[string]policy.Overrides{"org/model": {}} // else it would have to be served by somebody
	r := must.Get(newRouter(c, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry()))(t)
	mux := http.NewServeMux()
	for pattern, h := range r.decisions.pages() {
		mux.Handle(pattern, h)
	}
	return r, func(method, target, body string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}, log
}

// TestPolicyPages: a patch changes the fields that it names, of one model or all;
// a wrong one changes nothing and is refused with one sentence; each change is in
// the log.
func TestPolicyPages(t *testing.T) {
	r, do, log := policyServer(t)
	for i, step := range []struct {
		method, target, body string
		status               int
		want                 string // in the answer
		minMatch             float64
		logged               int // changes so far
	}{
		{"GET", "/policy", "", 200, `"version":1`, 0.3, 0},
		{"PATCH", "/policy", `{"min_prefix_match":0}`, 200, "min_prefix_match: default -> 0", 0, 1},
		{"GET", "/policy", "", 200, `"min_prefix_match":0`, 0, 1},
		{"PATCH", "/policy", `{"min_prefix_match":2}`, 400, "min_prefix_match: 2 is not from 0 to 1", 0, 1},
		{"PATCH", "/policy", `{"min_prefix_mach":1}`, 400, "min_prefix_mach: there is no such field", 0, 1},
		{"PATCH", "/policy", `[]`, 400, "not a JSON object", 0, 1},
		{"PATCH", "/policy", `{"hint_when_cold":false}` + strings.Repeat(" ", maxPatch), 413, "too large", 0, 1},
		{"PATCH", "/policy/org/model", `{"min_prefix_match":0.5}`, 200, `"model":"org/model"`, 0.5, 2},
		{"PATCH", "/policy/org/model", `{"min_prefix_match":null}`, 200, "min_prefix_match: 0.5 -> default", 0, 3},
		{"PATCH", "/policy", `{"min_prefix_match":null}`, 200, "min_prefix_match: 0 -> default", 0.3, 4},
		{"PATCH", "/policy/org/other", `{"min_prefix_match":0.5}`, 404, "served by no replica", 0.3, 4},
		{"PATCH", "/policy", `{}`, 200, `"fields":`, 0.3, 4},
		{"POST", "/policy", `{}`, 405, "", 0.3, 4},
	} {
		status, body := do(step.method, step.target, step.body)
		if status != step.status || !strings.Contains(strings.ReplaceAll(body, "\\u003e", ">"), step.want) {
			t.Errorf("step %d: %d %s, want %d with %q", i, status, body, step.status, step.want)
		}
		if got := r.decisions.book.Of("org/model").Balance.MinMatch; got != step.minMatch {
			t.Errorf("step %d: min_prefix_match %g, want %g", i, got, step.minMatch)
		}
		if n := strings.Count(log.String(), "policy changed"); n != step.logged {
			t.Errorf("step %d: %d changes in the log, want %d", i, n, step.logged)
		}
	}
}

// TestDisabledPoliciesAreNoted, also by a patch.
func TestDisabledPoliciesAreNoted(t *testing.T) {
	r, do, _ := policyServer(t)
	for i, step := range []struct{ target, policy, want string }{
		{"/policy/org/model", `null`, ""},
		{"/policy/org/model", `"disabled"`, `policy.models: route_policy is disabled, and requests get no hint, for "org/model"`},
		{"/policy", `"disabled"`, "policy.route_policy is disabled: no request gets a hint"},
		{"/policy/org/model", `"ttft"`, `policy.route_policy is disabled: only requests for these models get hints: "org/model"`},
		{"/policy", `null`, ""},
	} {
		if status, body := do("PATCH", step.target, `{"route_policy":`+step.policy+`}`); status != http.StatusOK {
			t.Fatalf("step %d: %d %s", i, status, body)
		}
		if got := strings.Join(r.decisions.notes(fleet.NewSnapshot()), "\n"); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestPressurePages: reading drains nothing, the reset does, of one model.
func TestPressurePages(t *testing.T) {
	r, do, _ := policyServer(t)
	now := time.Now()
	for _, model := range []string{"org/a", "org/a", "b"} {
		r.decisions.decider.Pressure().Raise(model, now)
	}
	for range 2 {
		if status, body := do("GET", "/pressure", ""); status != 200 || !strings.Contains(body, `"model":"org/a","recent":2,"raised":true`) || !strings.Contains(body, `"model":"b","recent":1,"raised":true`) {
			t.Errorf("pressure: %d %s", status, body)
		}
	}
	if status, _ := do("DELETE", "/pressure/org/a", ""); status != http.StatusNoContent {
		t.Errorf("reset: %d", status)
	}
	if _, body := do("GET", "/pressure", ""); !strings.Contains(body, `"model":"org/a","recent":0,"raised":false,"total":2`) || !strings.Contains(body, `"model":"b","recent":1`) {
		t.Errorf("after the reset of one model: %s", body)
	}
}
