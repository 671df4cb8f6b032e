//go:build kube

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// listTimeout bounds one list; a watch is bounded by the server, and its
// connection by HTTP/2 pings of the client library.
const listTimeout = 30 * time.Second

// mirror holds the needed fields of the objects that one reflector follows, by
// name. It implements cache.ReflectorStore.
type mirror[T any] struct {
	read    func(object) T
	changed func() // called after every change, without the lock

	mu     sync.Mutex
	items  map[string]T
	listed bool // it has been complete at least once
}

func newMirror[T any](read func(object) T, changed func()) *mirror[T] {
	return &mirror[T]{read: read, changed: changed, items: map[string]T{}}
}

// all returns the items by ascending name, false before they were complete.
func (m *mirror[T]) all() ([]T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []T
	for _, name := range slices.Sorted(maps.Keys(m.items)) {
		out = append(out, m.items[name])
	}
	return out, m.listed
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(o any) error { return m.Update(o) }

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		m.change(func() { m.items[u.GetName()] = m.read(u.Object) })
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(o any) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		m.change(func() { delete(m.items, u.GetName()) })
	}
	return nil
}

// Replace implements cache.ReflectorStore: a complete list.
func (m *mirror[T]) Replace(list []any, _ string) error {
	items := make(map[string]T, len(list))
	for _, o := range list {
		if u, ok := o.(*unstructured.Unstructured); ok {
			items[u.GetName()] = m.read(u.Object)
		}
	}
	m.change(func() { m.items, m.listed = items, true })
	return nil
}

// Resync implements cache.ReflectorStore; it has no work, because readers read
// everything each time.
func (m *mirror[T]) Resync() error { return nil }

func (m *mirror[T]) change(f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	m.changed()
}

// follower is a reflector that runs.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// stop ends the reflector and waits.
func (f *follower) stop() {
	f.cancel()
	<-f.done
}

// observed lists and watches one resource and records the results in the status.
type observed struct {
	resource string
	api      dynamic.ResourceInterface
	narrow   func(*metav1.ListOptions)
	status   *Status
	log      *slog.Logger
}

// retry is the delay after a failure: 0.1 s, doubled up to 1 s, with as much again at
// random. A failure does not show how long it will last: an API server that has just been
// started refuses connections, then answers 403 until it has read its roles, then 410 to
// an earlier watch. The library's own delays grow to between 30 and 60 s, in which a pod
// that is no longer ready would be named. Two watch requests a second are no load.
var retry = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: time.Second, Jitter: 1}

// follow keeps to in the API server's state until ctx ends: a list, then a watch from its
// version; another watch when that ends; another list when the API server no longer has
// the version. Every resource has its own follower with its own delays: none waits for
// another.
func (o *observed) follow(ctx context.Context, client dynamic.Interface, to cache.ReflectorStore) *follower {
	ctx, cancel := context.WithCancel(ctx)
	ctx = klog.NewContext(ctx, logr.Discard()) // this package logs the changes itself, each once
	silent := logr.Discard()
	lw := &cache.ListWatch{ListWithContextFunc: o.list, WatchFuncWithContext: o.watch}
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), nil, to,
		cache.ReflectorOptions{Name: o.resource, TypeDescription: o.resource, Logger: &silent, Backoff: &retry})
	f := &follower{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		r.RunWithContext(ctx)
	}()
	return f
}

func (o *observed) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	o.narrow(&options)
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := o.api.List(ctx, options)
	o.asked(ctx, "list", err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (o *observed) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	o.narrow(&options)
	w, err := o.api.Watch(ctx, options)
	if err == nil && reflect.TypeOf(w) == unanswered {
		err = errClosed
	}
	o.asked(ctx, "watch", err)
	return w, err
}

// unanswered reports a watch whose connection was closed without an answer, as by a
// balancer with no API server behind it. The client library returns such a watch without
// an error, and it ends at once. Without this check it would be requested again without a
// delay, and nobody would notice the outage.
var (
	unanswered = reflect.TypeOf(watch.NewEmptyWatch())
	errClosed  = errors.New("the connection was closed before the answer")
)

func (o *observed) asked(ctx context.Context, verb string, err error) {
	if ctx.Err() == context.Canceled {
		return // follow has given it up
	}
	result := resultOf(err)
	if result == "not_found" && o.resource == resourcePool {
		err = fmt.Errorf("the cluster serves no InferencePool of inference.networking.k8s.io/v1: %w", err)
	}
	if !o.status.asked(o.resource, verb, result, err) {
		return
	}
	if err == nil {
		o.log.Info("the Kubernetes API answers", "resource", o.resource)
	} else {
		o.log.Warn("the Kubernetes API does not answer; the replicas listed last stay", "resource", o.resource, "verb", verb, "result", result, "error", err)
	}
}
