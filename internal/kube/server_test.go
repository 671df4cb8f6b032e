//go:build kube

package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/internal/fleet"
	"warmroute/internal/kube/kubetest"
	"warmroute/render/testkit/must"
)

// overHTTP runs a source against a stand-in server with the recorded pool and
// one ready pod.
func overHTTP(t *testing.T, f kubetest.Faults, changes ...func(*kubetest.Server, *Options)) (*kubetest.Server, *watched) {
	t.Helper()
	leakless(t)
	api := kubetest.New(t)
	api.Fail(f)
	api.Put(append(recorded(t, "pool-v1.yaml"), onePod("a", "10.0.0.1", true))...)
	s := NewStatus()
	o := Options{Pool: "vllm-qwen3-8b", Kubeconfig: api.Kubeconfig(t, "inference")}
	for _, change := range changes {
		change(api, &o)
	}
	src := must.Get(New(o, s, logTo(t)))(t)
	return api, run(t, src, s)
}

const a, b = "a 10.0.0.1:8000", "b 10.0.0.2:8000"

// TestListsAndWatches in both ways to list, with bookmarks between the changes.
func TestListsAndWatches(t *testing.T) {
	for name, faults := range map[string]kubetest.Faults{"streaming lists": {}, "plain lists": {NoStreamLists: true}} {
		t.Run(name, func(t *testing.T) {
			api, w := overHTTP(t, faults)
			w.expect(a)
			w.until("both watches", func() bool { return api.Watches() == 2 })
			api.Bookmark()
			api.Put(onePod("b", "10.0.0.2", true))
			w.expect(a + "," + b)
			api.Bookmark()
			other := onePod("a", "10.0.0.1", true)
			other["metadata"].(kubetest.Object)["labels"].(kubetest.Object)["app"] = "something-else"
			api.Put(other) // it leaves the selector
			w.expect(b)
			lists := 0
			if faults.NoStreamLists {
				lists = 1
			}
			if got := api.Count("list pods"); got != lists {
				t.Errorf("%d lists of pods, want %d: what a watch tells needs none", got, lists)
			}
		})
	}
}

// TestDisconnect: a watch that breaks resumes at its version, without a list.
func TestDisconnect(t *testing.T) {
	api, w := overHTTP(t, kubetest.Faults{NoStreamLists: true})
	w.expect(a)
	w.until("both watches", func() bool { return api.Watches() == 2 })
	api.Put(onePod("c", "10.0.0.3", true)) // an event each, or the library takes the watch for broken
	w.expect(a + ",c 10.0.0.3:8000")
	api.Disconnect()
	api.Put(onePod("b", "10.0.0.2", true))
	w.expect(a + "," + b + ",c 10.0.0.3:8000")
	if got := api.Count("list pods"); got != 1 {
		t.Errorf("%d lists of pods, want 1", got)
	}
}

// TestGone: a watch from before the server's history gets 410; a new list finds
// the objects that came and went meanwhile.
func TestGone(t *testing.T) {
	for name, faults := range map[string]kubetest.Faults{
		"as status": {}, "as event": {LateGone: true}, "plain lists": {NoStreamLists: true}, "plain lists, as event": {NoStreamLists: true, LateGone: true},
	} {
		t.Run(name, func(t *testing.T) {
			api, w := overHTTP(t, faults)
			api.Put(onePod("c", "10.0.0.3", true))
			w.expect(a + ",c 10.0.0.3:8000")
			w.until("both watches", func() bool { return api.Watches() == 2 })
			before := api.Count("watch pods")
			api.Fail(kubetest.Faults{Down: true})
			api.Disconnect()
			w.until("the outage", func() bool { return len(w.status.Notes()) > 0 })
			api.Delete(onePod("a", "", true))
			api.Put(onePod("b", "10.0.0.2", true))
			api.Forget()
			if got := w.given()[len(w.given())-1]; got != a+",c 10.0.0.3:8000" {
				t.Errorf("the list changed to %q while the server was away", got)
			}
			api.Fail(faults)
			w.expect(b + ",c 10.0.0.3:8000")
			if api.Count("watch pods") == before {
				t.Error("there was no second watch")
			}
		})
	}
}

// TestOutage: while the API server does not answer, the replicas listed last
// stay; the reason is reported, once in the log, until the server answers.
func TestOutage(t *testing.T) {
	for name, faults := range map[string]kubetest.Faults{"breaks connections": {Down: true}, "answers 503": {Status: 503}, "answers 401": {Status: 401}} {
		t.Run(name, func(t *testing.T) {
			api, w := overHTTP(t, kubetest.Faults{})
			w.expect(a)
			w.until("both watches", func() bool { return api.Watches() == 2 })
			api.Fail(faults)
			api.Disconnect()
			w.until("two notes", func() bool { return len(w.status.Notes()) == 2 })
			for _, n := range w.status.Notes() {
				if !strings.Contains(n, "Kubernetes API, for") || !strings.Contains(n, "the replicas listed last stay") {
					t.Errorf("note %q", n)
				}
			}
			if err := w.status.Ready(); err != nil {
				t.Errorf("not ready: %v", err)
			}
			api.Fail(kubetest.Faults{})
			w.until("no notes", func() bool { return w.status.Notes() == nil })
			api.Put(onePod("b", "10.0.0.2", true))
			w.expect(a + "," + b)
			if lists := w.given(); !slices.Equal(lists, []string{a, a + "," + b}) {
				t.Errorf("lists %q", lists)
			}
		})
	}
}

// TestPodsFollowedWithoutPool: an API server that was away for long returns step
// by step, as a real one does: it refuses to read the pool, and no longer has the
// version of the pods' watch, which it reports by an event in an open watch.
// The pods are soon watched again; the pool is as soon as it can be read.
func TestPodsFollowedWithoutPool(t *testing.T) {
	api, w := overHTTP(t, kubetest.Faults{NoStreamLists: true})
	w.expect(a)
	w.until("both watches", func() bool { return api.Watches() == 2 })
	before := map[string]int{"watch pods": api.Count("watch pods"), "watch inferencepools": api.Count("watch inferencepools")}
	api.Fail(kubetest.Faults{Down: true})
	api.Disconnect()
	for what, n := range before { // as many failures as take the delay to its longest
		w.until(what+" repeated", func() bool { return api.Count(what) >= n+6 })
	}
	api.Put(onePod("a", "10.0.0.1", false), onePod("b", "10.0.0.2", true))
	api.Forget()
	api.Fail(kubetest.Faults{NoStreamLists: true, LateGone: true, Forbidden: "inferencepools"})
	w.expect(b)
	w.until("the refusal", func() bool {
		return slices.ContainsFunc(w.status.Notes(), func(n string) bool { return strings.Contains(n, "pool: kubetest: Forbidden") })
	})
	api.Put(onePod("a", "10.0.0.1", true), onePod("b", "10.0.0.2", false))
	w.expect(a)
	pool := recorded(t, "pool-v1.yaml")[0]
	pool["spec"].(kubetest.Object)["targetPorts"] = []any{kubetest.Object{"number": 9000}}
	api.Put(pool)
	api.Fail(kubetest.Faults{NoStreamLists: true})
	w.expect("a 10.0.0.1:9000")
}

// TestRetry: the delay after a failure grows, and ends growing, after however
// many failures.
func TestRetry(t *testing.T) {
	for range 100 {
		next := retry.DelayFunc()
		if first := next(); first < 100*time.Millisecond || first > 200*time.Millisecond {
			t.Fatalf("the first delay is %v", first)
		}
		last := time.Duration(0)
		for range 1000 {
			if last = next(); last > 2*time.Second {
				t.Fatalf("a delay of %v", last)
			}
		}
		if last < time.Second {
			t.Fatalf("after a thousand failures the delay is %v", last)
		}
	}
}

// TestStartDuringOutage: nothing is given before there is something complete.
func TestStartDuringOutage(t *testing.T) {
	api, w := overHTTP(t, kubetest.Faults{Down: true})
	w.until("the reason", func() bool {
		err := w.status.Ready()
		return err != nil && strings.Contains(err.Error(), "Kubernetes API, for")
	})
	api.Fail(kubetest.Faults{NotServed: "inferencepools"}) // the resource definition is not installed
	w.until("the reason", func() bool {
		err := w.status.Ready()
		return err != nil && strings.Contains(err.Error(), "the cluster serves no InferencePool of inference.networking.k8s.io/v1: kubetest: NotFound")
	})
	if lists := w.given(); len(lists) > 0 {
		t.Errorf("lists %q were given", lists)
	}
	api.Fail(kubetest.Faults{})
	w.expect(a)
}

// TestPoolChanges: another port and another selector take effect; while the
// pool is gone or its content cannot be used, the last content counts, and its
// pods are still watched.
func TestPoolChanges(t *testing.T) {
	api, w := overHTTP(t, kubetest.Faults{})
	w.expect(a)
	pool := recorded(t, "pool-v1.yaml")[0]
	spec := pool["spec"].(kubetest.Object)
	spec["targetPorts"] = []any{kubetest.Object{"number": 8000}, kubetest.Object{"number": 8001}}
	api.Put(pool)
	w.expect("a-rank-0 10.0.0.1:8000,a-rank-1 10.0.0.1:8001")

	api.Delete(pool)
	w.until("a note", func() bool {
		return slices.Contains(w.status.Notes(), "InferencePool inference/vllm-qwen3-8b: it does not exist (the replicas listed last stay)")
	})
	api.Put(onePod("b", "10.0.0.2", true))
	w.expect("a-rank-0 10.0.0.1:8000,a-rank-1 10.0.0.1:8001,b-rank-0 10.0.0.2:8000,b-rank-1 10.0.0.2:8001")
	api.Delete(onePod("b", "", true))
	w.expect("a-rank-0 10.0.0.1:8000,a-rank-1 10.0.0.1:8001")

	spec["targetPorts"] = []any{}
	api.Put(pool)
	w.until("a note", func() bool {
		return slices.ContainsFunc(w.status.Notes(), func(n string) bool { return strings.Contains(n, "it has 0 target ports") })
	})

	spec["targetPorts"] = []any{kubetest.Object{"number": 9000}}
	spec["selector"] = kubetest.Object{"matchLabels": kubetest.Object{"app": "other"}}
	moved := onePod("z", "10.0.0.7", true)
	moved["metadata"].(kubetest.Object)["labels"] = kubetest.Object{"app": "other"}
	api.Put(moved, pool)
	w.expect("z 10.0.0.7:9000")
	w.until("two watches", func() bool { return api.Watches() == 2 }) // the old selector's has ended
	if notes := w.status.Notes(); notes != nil {
		t.Errorf("notes %q", notes)
	}
}

// TestExampleRole: the role of the example allows the requests that are sent and
// no others: a pool with another name is forbidden.
func TestExampleRole(t *testing.T) {
	for name, want := range map[string]string{"vllm-qwen3-8b": a, "another": ""} {
		t.Run(name, func(t *testing.T) {
			api, w := overHTTP(t, kubetest.Faults{NoStreamLists: true}, func(api *kubetest.Server, o *Options) {
				api.Enforce(example(t, "rbac.yaml", "Role"))
				o.Pool = name
			})
			if want != "" {
				w.expect(want)
				w.until("both watches", func() bool { return api.Watches() == 2 })
				return
			}
			w.until("the reason", func() bool {
				err := w.status.Ready()
				return err != nil && strings.Contains(err.Error(), "list pool: kubetest: Forbidden")
			})
		})
	}
}

// TestWatchLeavesNothing: when it has ended its connections have too, and a
// request that it gave up is no failure.
func TestWatchLeavesNothing(t *testing.T) {
	api, w := overHTTP(t, kubetest.Faults{})
	w.expect(a)
	w.until("both watches", func() bool { return api.Watches() == 2 })
	w.stop()
	w.until("no connections", func() bool { return api.Connections() == 0 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	(&observed{resource: resourcePods, status: w.status, log: logTo(t)}).asked(ended, "list", ended.Err())
	if notes := w.status.Notes(); notes != nil {
		t.Errorf("notes %q", notes)
	}
}

// TestNewSaysWhatIsMissing instead of waiting for it.
func TestNewSaysWhatIsMissing(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for o, want := range map[*Options]string{
		{Pool: "p"}:                         "kubernetes.kubeconfig is not given, and this is no pod of a cluster",
		{Pool: "p", Kubeconfig: "/nowhere"}: `kubernetes.kubeconfig: "/nowhere": `,
	} {
		var src fleet.Source
		src, err := New(*o, NewStatus(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v; want %s", o, src, err, want)
		}
	}
}
