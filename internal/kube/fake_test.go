//go:build kube

package kube

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"

	"warmroute/internal/fleet"
	"warmroute/internal/kube/kubetest"
	"warmroute/render/testkit/must"
)

// hang is how long something may take before a test calls it stuck; a failure is
// repeated within 2 s.
const hang = 30 * time.Second

// watched runs a source and keeps the lists it gives.
type watched struct {
	*testing.T
	status *Status
	stop   func() // ends the source and waits; may be called twice

	mu    sync.Mutex
	lists []string // "name address,…" each
}

func run(t *testing.T, src fleet.Source, s *Status) *watched {
	t.Helper()
	w := &watched{T: t, status: s}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch ends with %v", err)
		}
	})
	go func() {
		done <- src.Watch(ctx, func(list []fleet.ReplicaOptions) {
			var parts []string
			for _, r := range list {
				parts = append(parts, r.Name+" "+r.Address)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lists = append(w.lists, strings.Join(parts, ","))
		})
	}()
	t.Cleanup(w.stop)
	return w
}

func (w *watched) given() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lists)
}

// until waits for a condition.
func (w *watched) until(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(hang); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s did not come; lists %q, ready %v, notes %q", what, w.given(), w.status.Ready(), w.status.Notes())
		}
	}
}

// expect waits until the list given last is want.
func (w *watched) expect(want string) {
	w.Helper()
	w.until("the list "+want, func() bool {
		lists := w.given()
		return len(lists) > 0 && lists[len(lists)-1] == want
	})
}

func logTo(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func leakless(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// onePod is a pod of the recorded pool.
func onePod(name, ip string, ready bool) kubetest.Object {
	status := "False"
	if ready {
		status = "True"
	}
	return kubetest.Object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": kubetest.Object{"name": name, "namespace": "inference", "labels": kubetest.Object{"app": "vllm-qwen3-8b"}},
		"status":   kubetest.Object{"podIP": ip, "conditions": []any{kubetest.Object{"type": "Ready", "status": status}}},
	}
}

// fakeAPI is the client library's own fake, with objects in it.
func fakeAPI(objects ...kubetest.Object) *fake.FakeDynamicClient {
	var list []runtime.Object
	for _, o := range objects {
		list = append(list, &unstructured.Unstructured{Object: o})
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		poolResource(): "InferencePoolList", podResource(): "PodList",
	}, list...)
}

var qwen = Options{Pool: "vllm-qwen3-8b", Namespace: "inference"}

const (
	firstReplica  = "vllm-qwen3-8b-7c9d8f6b5-2xk4p 10.42.1.17:8000"
	secondReplica = "vllm-qwen3-8b-7c9d8f6b5-9qzrw [fd00:42:2::9]:8000"
)

// TestRecordedObjects: a recorded pool, real pods.
func TestRecordedObjects(t *testing.T) {
	leakless(t)
	s := NewStatus()
	objects := append(recorded(t, "pool-v1.yaml"), recorded(t, "pods.yaml")...)
	w := run(t, newSource(qwen, fakeAPI(objects...), s, logTo(t)), s)
	w.expect(firstReplica + "," + secondReplica)
	if err := s.Ready(); err != nil || s.Notes() != nil {
		t.Errorf("ready %v, notes %q", err, s.Notes())
	}
}

// TestPodsComeAndGo: with the library's fake, whose watches send every change.
func TestPodsComeAndGo(t *testing.T) {
	leakless(t)
	api := fakeAPI(append(recorded(t, "pool-v1.yaml"), onePod("a", "10.0.0.1", true), onePod("b", "10.0.0.2", false))...)
	s := NewStatus()
	w := run(t, newSource(qwen, api, s, logTo(t)), s)
	pods := api.Resource(podResource()).Namespace("inference")
	update := func(o kubetest.Object) {
		t.Helper()
		must.Get(pods.Update(t.Context(), &unstructured.Unstructured{Object: o}, metav1.UpdateOptions{}))(t)
	}
	w.expect("a 10.0.0.1:8000")
	w.until("both watches", func() bool { return watching(api, "pods") && watching(api, "inferencepools") })
	update(onePod("b", "10.0.0.2", true))
	w.expect("a 10.0.0.1:8000,b 10.0.0.2:8000")
	update(onePod("a", "10.0.0.1", false))
	w.expect("b 10.0.0.2:8000")
	going := onePod("b", "10.0.0.2", true)
	going["metadata"].(kubetest.Object)["deletionTimestamp"] = "2026-09-30T08:15:10Z"
	update(going)
	w.expect("")
	update(onePod("a", "10.0.0.9", true)) // the same pod with another address is another replica
	w.expect("a 10.0.0.9:8000")
	must.Do(t, pods.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	w.expect("")
}

func watching(api *fake.FakeDynamicClient, resource string) bool {
	return slices.ContainsFunc(api.Actions(), func(a kubetesting.Action) bool {
		return a.GetVerb() == "watch" && a.GetResource().Resource == resource
	})
}

// TestClosedUnanswered: a watch whose connection is closed before there is an
// answer has not begun, although the client library reports it as begun.
func TestClosedUnanswered(t *testing.T) {
	leakless(t)
	api := fakeAPI(append(recorded(t, "pool-v1.yaml"), onePod("a", "10.0.0.1", true))...)
	api.PrependWatchReactor("pods", func(kubetesting.Action) (bool, watch.Interface, error) {
		return true, watch.NewEmptyWatch(), nil
	})
	s := NewStatus()
	w := run(t, newSource(qwen, api, s, logTo(t)), s)
	w.expect("a 10.0.0.1:8000")
	w.until("a note", func() bool {
		return slices.ContainsFunc(s.Notes(), func(n string) bool { return strings.Contains(n, "watch pods: the connection was closed") })
	})
}

// TestForbidden: readiness reports a role that lacks a permission.
func TestForbidden(t *testing.T) {
	leakless(t)
	api := fakeAPI(append(recorded(t, "pool-v1.yaml"), onePod("a", "10.0.0.1", true))...)
	api.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("pods is forbidden: User \"system:serviceaccount:inference:warmroute\" cannot list resource \"pods\"")
	})
	s := NewStatus()
	w := run(t, newSource(qwen, api, s, logTo(t)), s)
	w.until("the reason", func() bool {
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), `cannot list resource "pods"`)
	})
	if lists := w.given(); len(lists) > 0 {
		t.Errorf("lists %q were given", lists)
	}
}
