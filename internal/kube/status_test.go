package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/internal/telemetry/metricstest"
)

func TestStatusSaysWhy(t *testing.T) {
	now := time.Unix(0, 0)
	s := NewStatus()
	s.now = func() time.Time { return now }
	wantReady := func(want string) {
		t.Helper()
		got := ""
		if err := s.Ready(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("ready: got %q, want %q", got, want)
		}
	}
	wantReady("")
	s.use("inference/vllm")
	wantReady("InferencePool inference/vllm: it has not been listed yet")
	refused := errors.New("connection refused")
	if !s.asked(resourcePool, "list", "unreachable", refused) || s.asked(resourcePool, "list", "unreachable", refused) {
		t.Error("the first failure is news, the second is not")
	}
	now = now.Add(90 * time.Second)
	wantReady("Kubernetes API, for 1m30s: list pool: connection refused; InferencePool inference/vllm: it has not been listed yet")
	if !s.asked(resourcePool, "list", "ok", nil) || !s.setPoolError("it does not exist") || s.setPoolError("it does not exist") {
		t.Error("the first answer is news, and so is the first judgement")
	}
	wantReady("InferencePool inference/vllm: it does not exist")
	s.setPoolError("")
	wantReady("InferencePool inference/vllm: its pods have not been listed yet")
	s.asked(resourcePods, "watch", "ok", nil)
	s.setPods(2, 1)
	wantReady("")
	s.asked(resourcePods, "watch", "timeout", errors.New(strings.Repeat("x", 1000)))
	if notes := s.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "Kubernetes API, for 0s: watch pods: xxx") ||
		!strings.HasSuffix(notes[0], "x… (the replicas listed last stay)") || len(notes[0]) > 400 {
		t.Errorf("notes: %q", notes)
	}
	wantReady("") // the list is in use
}

func TestStatusMetrics(t *testing.T) {
	s := NewStatus()
	if n := testutil.CollectAndCount(s); n != 0 {
		t.Errorf("%d series without a source", n)
	}
	s.use("inference/vllm")
	s.asked(resourcePool, "list", "ok", nil)
	s.setPoolError("")
	s.asked(resourcePods, "list", "forbidden", errors.New("no"))
	s.setPods(2, 1)
	const want = `
# HELP warmroute_kubernetes_pods Pods of the InferencePool, replicas or not.
# TYPE warmroute_kubernetes_pods gauge
warmroute_kubernetes_pods{state="not_ready"} 1
warmroute_kubernetes_pods{state="ready"} 2
# HELP warmroute_kubernetes_pool_usable 1 while the InferencePool exists and is usable.
# TYPE warmroute_kubernetes_pool_usable gauge
warmroute_kubernetes_pool_usable 1
# HELP warmroute_kubernetes_requests_total Requests to the Kubernetes API: ok, or the error.
# TYPE warmroute_kubernetes_requests_total counter
warmroute_kubernetes_requests_total{resource="pods",result="forbidden",verb="list"} 1
warmroute_kubernetes_requests_total{resource="pool",result="ok",verb="list"} 1
# HELP warmroute_kubernetes_up 1 while the Kubernetes API answers.
# TYPE warmroute_kubernetes_up gauge
warmroute_kubernetes_up{resource="pods"} 0
warmroute_kubernetes_up{resource="pool"} 1
`
	if err := testutil.CollectAndCompare(s, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(s)
	metricstest.Lint(t, reg)
	if notes := s.Notes(); !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "list pods: no") }) {
		t.Errorf("notes: %q", notes)
	}
}
