package faults

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/indexrpc"
	"warmroute/internal/kvevents"
	"warmroute/internal/reporter"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// window is the sidecar's debounce window, at its default.
const window = 100 * time.Millisecond

// path leads from publishers to one index: in process, or through reporters and
// a gRPC service.
type path struct {
	t      *testing.T
	name   string
	nodes  []*node
	index  atomic.Pointer[index.Index]
	follow map[index.Holder]*follower

	// The remote path's.
	client indexpb.CacheIndexClient
	addr   string
	stop   func()

	// The storm's faults of its subscribers.
	pauses, replaced, lost int

	holes, rests uint64 // by the subscribers that have left: holes not filled, pauses of publishers

	mu    sync.Mutex
	heard time.Duration // longest that a hint outlived the event that the subscriber received
	truth time.Duration // longest that a hint outlived the truth at the publisher
	hints int
}

// follower is one publisher's subscription on a path.
type follower struct {
	view  *record      // the changes that the subscriber handed on
	pause sync.RWMutex // held while the subscriber stands still
	sub   *kvevents.Subscriber
	stop  func()
}

// witness records the changes that a subscriber hands to the index.
type witness struct {
	to kvevents.Sink
	f  *follower
}

func (w witness) Begin(h index.Holder) uint64 {
	incarnation := w.to.Begin(h)
	w.f.view.clear(time.Now())
	return incarnation
}

func (w witness) Apply(b *index.Batch) (index.Result, error) {
	w.f.pause.RLock()
	defer w.f.pause.RUnlock()
	for _, e := range b.Events { // a coming block may be seen before Apply returns
		if e.Kind == index.Stored {
			w.f.view.store(e.Hashes...)
		}
	}
	res, err := w.to.Apply(b)
	if err == nil { // a removed block must not be seen afterwards
		w.f.view.apply(time.Now(), b.Events)
	}
	return res, err
}

// inProcess is the path of the router's own subscribers.
func inProcess(t *testing.T, nodes []*node) *path {
	p := &path{t: t, name: "in process", nodes: nodes, follow: make(map[index.Holder]*follower)}
	p.newIndex()
	return p
}

// throughSidecars is the path of kvsub.
func throughSidecars(t *testing.T, nodes []*node) *path {
	t.Helper()
	p := &path{t: t, name: "through sidecars", nodes: nodes, follow: make(map[index.Holder]*follower)}
	p.serve("127.0.0.1:0")
	conn := must.Get(grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	p.client = indexpb.NewCacheIndexClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		p.stop()
	})
	return p
}

func (p *path) newIndex() *index.Index {
	p.t.Helper()
	x := index.New(index.Options{})
	p.t.Cleanup(x.Close)
	p.index.Store(x)
	return x
}

// serve makes a new, empty index behind addr.
func (p *path) serve(addr string) {
	p.t.Helper()
	l := must.Get(net.Listen("tcp", addr))(p.t)
	p.addr = l.Addr().String()
	s := indexrpc.New(p.newIndex(), indexrpc.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	p.stop = func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	}
}

// source has the endpoints of a replica's events.
type source struct {
	holder                  index.Holder
	endpoint, replay, topic string
}

// join starts a subscription without any state.
func (p *path) join(from source) {
	p.t.Helper()
	p.mu.Lock()
	if p.follow[from.holder] == nil {
		p.follow[from.holder] = &follower{view: newRecord()}
	}
	f := p.follow[from.holder]
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	reporting, last := context.WithCancel(context.Background())
	var sink kvevents.Sink = p.index.Load()
	var subscriber, reports sync.WaitGroup
	if p.client != nil {
		r := reporter.New(p.client, from.holder, reporter.Options{Window: window})
		reports.Go(func() { _ = r.Run(reporting) }) // the next one reports the changes that it could not
		sink = r
	}
	s := must.Get(kvevents.New(kvevents.Options{
		Replica: from.holder.Replica, Endpoint: from.endpoint, ReplayEndpoint: from.replay, Topic: from.topic,
		Model: scope.Model, Scheme: scope.Scheme,
	}, witness{sink, f}))(p.t)
	f.sub = s
	subscriber.Go(func() { _ = s.Run(ctx) })
	f.stop = func() {
		cancel()
		subscriber.Wait()
		last()
		reports.Wait()
	}
}

func (p *path) leave(h index.Holder) {
	f := p.follow[h]
	f.stop()
	st := f.sub.Status()
	p.holes += st.Lost
	p.rests += st.Pauses
}

// watch looks hints up until ctx ends, as requests do, and measures how long
// each wrong block outlived its end.
func (p *path) watch(ctx context.Context, prompts *prompts) {
	byHolder := make(map[index.Holder]*node)
	for _, n := range p.nodes {
		byHolder[n.holder] = n
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var found []index.Match
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c, x := &prompts.chains[i%chains], p.index.Load()
		at := time.Now()
		found = x.Lookup(found[:0], scope, c.keys)
		for _, m := range found {
			h, ok := x.HolderOf(m.ID)
			if n := byHolder[h]; ok {
				p.measure(n, c, int(m.Blocks), at)
			}
		}
	}
}

func (p *path) measure(n *node, c *chain, matched int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hints++
	for _, h := range c.hashes[:matched] {
		p.heard = max(p.heard, p.follow[n.holder].view.stale(h, at))
		p.truth = max(p.truth, n.truth.stale(h, at))
	}
}

// wrong states where the index differs from the truth; where history was lost it
// may hold less, unless whole is set.
func (p *path) wrong(whole bool) error {
	x := p.index.Load()
	all := contents(x)
	for _, n := range p.nodes {
		want := make(map[prefixhash.Key]bool)
		for _, h := range n.truth.all() {
			want[n.prompts.key[h]] = true
		}
		extra, missing := 0, 0
		for k := range all[n.holder] {
			if !want[k] {
				extra++
			}
		}
		for k := range want {
			if !all[n.holder][k] {
				missing++
			}
		}
		if extra > 0 || missing > 0 && (whole || !n.lossy) {
			return fmt.Errorf("%s: %s: %d blocks too many, %d missing, of %d", p.name, n.holder.Replica, extra, missing, len(want))
		}
		if err := p.mismatched(x, n, whole || !n.lossy); err != nil {
			return err
		}
	}
	return nil
}

// mismatched compares lookups: each match ends at the truth's first hole.
func (p *path) mismatched(x *index.Index, n *node, whole bool) error {
	for i := range n.prompts.chains {
		c := &n.prompts.chains[i]
		want, got := 0, 0
		for want < chainLen && n.truth.holds(c.hashes[want]) {
			want++
		}
		for _, m := range x.Lookup(nil, scope, c.keys) {
			if h, ok := x.HolderOf(m.ID); ok && h == n.holder {
				got = int(m.Blocks)
			}
		}
		if got > want || got < want && whole {
			return fmt.Errorf("%s: %s: prompt %d matches %d blocks, in truth %d", p.name, n.holder.Replica, i, got, want)
		}
	}
	return nil
}
