//go:build kube

package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"warmroute/internal/fleet"
)

// Built reports whether this binary has a Kubernetes client.
const Built = true

// New returns a source of the replicas of a pool. It fails if no API server is
// named; Watch waits for one that does not answer.
func New(o Options, s *Status, log *slog.Logger) (fleet.Source, error) {
	client, err := connect(o)
	if err != nil {
		return nil, err
	}
	o.Namespace = cmp.Or(o.Namespace, client.namespace)
	src := newSource(o, client.Interface, s, log)
	src.close = client.close
	return src, nil
}

// newSource takes any client; o names the namespace.
func newSource(o Options, client dynamic.Interface, s *Status, log *slog.Logger) *source {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	src := &source{options: o, client: client, status: s, close: func() {}, log: log.With("pool", o.Namespace+"/"+o.Pool)}
	s.use(o.Namespace + "/" + o.Pool)
	return src
}

// source watches one InferencePool and its pods. It implements fleet.Source.
type source struct {
	options Options
	client  dynamic.Interface
	status  *Status
	log     *slog.Logger
	close   func() // ends the client's connections when Watch ends
}

func (s *source) String() string { return "kubernetes" }

// poolResult is a pool, or the reason why it is unusable.
type poolResult struct {
	pool pool
	err  error
}

// selectedPods are the pods of one selector.
type selectedPods struct {
	selector string
	mirror   *mirror[pod]
	follower *follower
}

// Watch implements fleet.Source. It ends with ctx only.
func (s *source) Watch(ctx context.Context, set func([]fleet.ReplicaOptions)) error {
	signal := make(chan struct{}, 1) // one signal is enough: everything is read each time
	changed := func() {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
	pools := newMirror(func(o object) poolResult {
		p, err := readPool(o)
		return poolResult{p, err}
	}, changed)
	defer s.close()
	defer s.followPool(ctx, pools).stop()

	var current *pool // the last usable one
	var pods *selectedPods
	defer func() {
		if pods != nil {
			pods.follower.stop()
		}
	}()
	var last []fleet.ReplicaOptions
	given := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signal:
		}
		if p, ok := s.usablePool(pools); ok {
			current = &p
		}
		if current == nil {
			continue
		}
		if pods == nil || pods.selector != current.selector {
			if pods != nil {
				pods.follower.stop()
			}
			pods = s.followPods(ctx, current.selector, changed)
		}
		all, listed := pods.mirror.all()
		if !listed {
			continue
		}
		list := replicas(*current, all, s.options.Replica)
		s.status.setPods(countReady(all))
		if !given || !reflect.DeepEqual(list, last) {
			set(list)
			last, given = list, true
		}
	}
}

// usablePool returns the current pool, false when it is unusable, and logs this
// when that changes.
func (s *source) usablePool(pools *mirror[poolResult]) (pool, bool) {
	all, listed := pools.all()
	if !listed {
		return pool{}, false
	}
	why := "it does not exist"
	var p pool
	if len(all) > 0 { // one at most: the list is limited to the name
		p, why = all[0].pool, ""
		if all[0].err != nil {
			why = all[0].err.Error()
		}
	}
	if s.status.setPoolError(why) {
		switch {
		case why != "":
			s.log.Warn("the InferencePool cannot be used; the replicas listed last stay", "why", why)
		default:
			s.log.Info("the InferencePool is followed", "selector", p.selector, "ports", fmt.Sprint(p.ports), "fail_open", p.failOpen)
		}
	}
	return p, why == ""
}

func (s *source) followPool(ctx context.Context, to *mirror[poolResult]) *follower {
	o := &observed{
		resource: resourcePool, status: s.status, log: s.log,
		api:    s.client.Resource(poolResource()).Namespace(s.options.Namespace),
		narrow: func(l *metav1.ListOptions) { l.FieldSelector = "metadata.name=" + s.options.Pool }, // a role for one name also requires it
	}
	return o.follow(ctx, s.client, to)
}

func (s *source) followPods(ctx context.Context, selector string, changed func()) *selectedPods {
	m := &selectedPods{selector: selector, mirror: newMirror(readPod, changed)}
	o := &observed{
		resource: resourcePods, status: s.status, log: s.log,
		api:    s.client.Resource(podResource()).Namespace(s.options.Namespace),
		narrow: func(l *metav1.ListOptions) { l.LabelSelector = selector },
	}
	m.follower = o.follow(ctx, s.client, m.mirror)
	return m
}

func countReady(pods []pod) (ready, notReady int) {
	for _, p := range pods {
		if p.ready {
			ready++
		} else {
			notReady++
		}
	}
	return ready, notReady
}
