package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/internal/bound"
	"warmroute/internal/problems"
)

const (
	// learnSlots bounds the concurrent requests to replicas that are not up.
	// Replicas that are up need no slot. A request that hangs holds its slot for two
	// scrape timeouts.
	learnSlots = 64
	// publishEvery bounds how often new loads make a new snapshot: scrapes are
	// once a second per replica, so 100 ms adds little age and saves a fleet of
	// hundreds most of the rebuilding. Joins and leaves are published at once.
	publishEvery = 100 * time.Millisecond
	// sourceRetry is the wait before a source that failed is started again: each failure is logged.
	sourceRetry = 10 * time.Second
)

// Hooks are called for joins and leaves, one call at a time, on the goroutine of
// Run. They must return quickly: nothing joins or leaves meanwhile.
type Hooks struct {
	// Joined is called before the replica is offered to requests.
	Joined func(*Replica)
	// Left is called exactly once per Joined, after the replica is no longer
	// offered, with its last values; but not when Run ends.
	Left func(*Replica)
	// Requests returns how many requests this router has sent to a replica's rank so far, and
	// how many of them are in flight. Replicas' goroutines call it; nil: none is known of.
	Requests func(h index.Holder) (sent, inFlight int64)
}

// Fleet watches replicas; see the package comment. Make it with New.
type Fleet struct {
	hooks   Hooks
	log     *slog.Logger
	metrics *metrics
	running atomic.Bool
	current atomic.Pointer[asking]
	changed chan struct{}      // capacity 1: the options in force have changed
	served  map[string][]Model // by address, what a replica served before its worker began

	publishers publishers
	slots      chan struct{}
	notices    chan notice
	lists      chan listing
	looks      chan string // addresses
	snapshot   atomic.Pointer[Snapshot]
}

// asking is the way to find and reach replicas. It is immutable.
type asking struct {
	options Options
	client  *client
}

// listing is the complete list of one source, or its failure.
type listing struct {
	from     *watched
	replicas []ReplicaOptions
	failure  error
}

// New checks o and prepares a fleet; no request is sent before Run.
func New(o Options, hooks Hooks) (*Fleet, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	o = o.withDefaults()
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	if hooks.Joined == nil {
		hooks.Joined = func(*Replica) {}
	}
	if hooks.Left == nil {
		hooks.Left = func(*Replica) {}
	}
	f := &Fleet{
		hooks: hooks, log: o.Logger, changed: make(chan struct{}, 1),
		served: map[string][]Model{}, slots: make(chan struct{}, learnSlots), notices: make(chan notice), lists: make(chan listing), looks: make(chan string, learnSlots),
	}
	maps.Copy(f.served, o.Served)
	f.current.Store(&asking{o, c})
	f.snapshot.Store(newSnapshot(nil, false))
	if f.metrics, err = newMetrics(o.Registerer, f); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return f, nil
}

// now returns the options in force.
func (f *Fleet) now() *Options { return &f.current.Load().options }

// URL returns the root of a replica's HTTP API, without a slash at the end.
func (f *Fleet) URL(addr string) string { return f.now().HTTP.URL(addr) }

// client returns the HTTP client in force.
func (f *Fleet) client() *client { return f.current.Load().client }

// Snapshot returns the current fleet, never nil.
func (f *Fleet) Snapshot() *Snapshot { return f.snapshot.Load() }

// Look has a replica read again now instead of at its time, once in lookEvery: an answer says that it
// may have become another one. It waits for nobody.
func (f *Fleet) Look(addr string) {
	select {
	case f.looks <- addr:
	default: // others are looked at: an answer comes again
	}
}

// Set replaces the options, e.g. after the configuration file has changed. Replicas
// whose own settings are unchanged are not affected. Options that only a program can
// set (sources, metrics, the log, the resolver, the transport) stay. An error means
// that nothing has changed.
func (f *Fleet) Set(o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	old := f.current.Load()
	own := old.options
	o.Sources, o.Templates, o.Registerer, o.Logger, o.Resolver, o.Transport = own.Sources, own.Templates, own.Registerer, own.Logger, own.Resolver, own.Transport
	next := &asking{o.withDefaults(), old.client}
	if next.options.HTTP != own.HTTP {
		var err error
		if next.client, err = newClient(next.options); err != nil {
			return err
		}
	}
	f.current.Store(next)
	if next.client != old.client {
		old.client.http.CloseIdleConnections()
	}
	select {
	case f.changed <- struct{}{}:
	default: // one signal is enough: Run reads the latest
	}
	return nil
}

// Run watches until ctx ends, waits for everything it started, and returns nil.
// It may be called once.
func (f *Fleet) Run(ctx context.Context) error {
	if f.running.Swap(true) {
		return errors.New("fleet: Run is called twice")
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := &roster{fleet: f, ctx: ctx, wg: &wg, entries: map[string]*entry{}}
	late := time.After(settleAfter)
	r.follow()
	tick := time.Tick(publishEvery)
	for {
		select {
		case <-ctx.Done():
			f.client().http.CloseIdleConnections()
			return nil
		case <-f.changed:
			r.follow()
		case l := <-f.lists:
			r.hear(l)
		case <-late:
			r.late = true
			r.publish()
		case addr := <-f.looks:
			r.look(addr)
		case n := <-f.notices:
			r.notice(n)
			r.replace()
		case <-tick:
			r.replace()
			if r.stale {
				r.publish()
			}
		}
	}
}

// watch runs one source and starts it again after failures.
func (f *Fleet) watch(ctx context.Context, w *watched) {
	send := func(l listing) {
		select {
		case f.lists <- l:
		case <-ctx.Done():
		}
	}
	for {
		err := w.source.Watch(ctx, func(list []ReplicaOptions) { send(listing{from: w, replicas: slices.Clone(list)}) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended")
		}
		f.metrics.sourceFailures.WithLabelValues(w.name).Inc()
		f.log.Warn("a source of replicas failed; its last list stays", "source", w.name, "error", err)
		send(listing{from: w, failure: err})
		select {
		case <-ctx.Done():
		case <-time.After(sourceRetry):
		}
	}
}

func sourceName(s Source) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", s)
}

// roster is the state of Run's loop, and belongs to it alone.
type roster struct {
	fleet   *Fleet
	ctx     context.Context // of the workers
	wg      *sync.WaitGroup
	entries map[string]*entry // by address
	sources []*watched        // the earlier one's settings count
	twice   map[string]string // by address, two sources that give it different settings
	joins   uint64
	going   int  // entries that are no longer listed
	stale   bool // entries hold values no snapshot has
	late    bool // settleAfter has passed
}

// entry is one listed replica.
type entry struct {
	worker  *worker
	cancel  context.CancelFunc
	current *Replica   // Ready or Held from join to leave
	others  bound.Rate // times at which another process answered at the address
	asked   bool       // it has answered, or failed to, once
	reason  string     // why it is not ready, of the closed set
	until   time.Time  // not listed any more: the time of its removal at the latest; zero: it is listed
}

// addresses returns the addresses of all entries, in order.
func (r *roster) addresses() []string { return slices.Sorted(maps.Keys(r.entries)) }

// list applies the sources' lists: it starts workers for new addresses and stops the
// workers of addresses that are gone. Unchanged ones stay as they are.
func (r *roster) list() {
	wanted := r.wanted()
	var gone []*entry
	for _, addr := range r.addresses() {
		e := r.entries[addr]
		o, ok := wanted[addr]
		switch {
		case !ok:
			gone = append(gone, e)
		case reflect.DeepEqual(o, e.worker.options):
			e.until = time.Time{}
			delete(wanted, addr)
		default:
			r.fleet.served[addr] = e.current.Models
			r.remove(addr, e)
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(wanted)) {
		r.start(addr, wanted[addr])
	}
	r.overlap(gone)
	r.publish()
}

// hear takes a source's list, or its failure, which leaves its list as it is.
func (r *roster) hear(l listing) {
	if l.from.failure = l.failure; l.failure == nil {
		l.from.list, l.from.spoken = l.replicas, true
	}
	switch {
	case !slices.Contains(r.sources, l.from):
	case l.failure == nil:
		r.list()
	default:
		r.publish()
	}
}

// wanted merges the sources' lists. The first source to name an address counts.
func (r *roster) wanted() map[string]ReplicaOptions {
	out, from := map[string]ReplicaOptions{}, map[string]*watched{}
	ignored := 0
	r.twice = map[string]string{}
	for _, w := range r.sources {
		for _, o := range w.list {
			var p problems.List
			addr, err := parseAddress(o.Address)
			if o.validate(&p, o.Address); err != nil || len(p) > 0 {
				ignored++
				r.fleet.log.Warn("a source lists a replica that cannot be used", "source", w.name,
					"replica", o.Address, "error", errors.Join(append(p, err)...))
				continue
			}
			o.Address = addr
			if first, ok := out[addr]; ok {
				if from[addr].source != nil && !reflect.DeepEqual(first, o) { // the file may name other settings on purpose
					r.twice[addr] = from[addr].name + ", " + w.name
				}
				continue
			}
			if len(out) >= r.fleet.now().maxReplicas {
				ignored++
				continue
			}
			out[addr], from[addr] = o, w
		}
	}
	if ignored > 0 {
		r.fleet.log.Warn("replicas are ignored", "count", ignored, "most", r.fleet.now().maxReplicas)
	}
	return out
}

// look wakes a replica's worker.
func (r *roster) look(addr string) {
	if e := r.entries[addr]; e != nil {
		select {
		case e.worker.wake <- struct{}{}:
		default:
		}
	}
}

func (r *roster) start(addr string, o ReplicaOptions) {
	ctx, cancel := context.WithCancel(r.ctx)
	e := &entry{worker: newWorker(r.fleet, addr, o), cancel: cancel, current: describe(addr, o)}
	e.current.Why = "starting: it has not been contacted yet"
	if len(e.current.Models) == 0 {
		e.current.Models = r.fleet.served[addr]
	}
	r.entries[addr] = e
	r.wg.Go(func() {
		defer cancel()
		e.worker.run(ctx)
	})
}

// notice applies a worker's notice. It ignores replicas that are no longer listed.
func (r *roster) notice(n notice) {
	e := r.entries[n.from.addr]
	if e == nil || e.worker != n.from {
		return
	}
	first := !e.asked
	e.asked = true
	switch n.change {
	case joined:
		r.join(e, n.replica)
	case updated:
		n.replica.Joined = e.current.Joined
		if n.replica.Held != e.current.Held {
			r.fleet.log.Warn("replica's state has changed", "replica", e.current.Addr, named(e.current), "ready", n.replica.Ready, "why", n.replica.Why)
		}
		e.current = n.replica
		r.stale = true
	case left:
		r.leave(e, n.reason, n.why)
	case failed:
		if first || e.reason != n.reason { // not for every new wording of it
			r.fleet.log.Warn("replica is not ready", "replica", e.current.Addr, named(e.current), "why", n.why)
		}
		e.reason, e.current, r.stale = n.reason, notReady(e, n.why), true
	}
}

func (r *roster) join(e *entry, replica *Replica) {
	r.joins++
	replica.Joined = r.joins
	e.current = replica
	r.fleet.log.Info("replica joined", "replica", replica.Addr, named(replica), "version", replica.Version, "models", len(replica.Models),
		"block_size", replica.BlockSize, "ranks", len(replica.Ranks), "event_sources", len(replica.Events), "render", replica.Render)
	r.fleet.hooks.Joined(replica)
	r.publish()
}

// leave ends a replica that has joined: it first removes the replica from the
// snapshot, then announces its end. Nothing else does. It ignores other replicas.
func (r *roster) leave(e *entry, reason, why string) {
	if !e.current.Ready && !e.current.Held {
		return
	}
	if reason == reasonRestarted {
		e.others.Add(1, time.Now(), restartTakes, 2*manyRestarts)
	}
	last := e.current
	e.reason, e.current = reason, notReady(e, why)
	r.publish()
	r.fleet.log.Warn("replica left", "replica", last.Addr, named(last), "reason", reason, "why", why)
	r.fleet.hooks.Left(last)
}

// named returns the replica's name for a log line; the attribute is empty without
// one.
func named(r *Replica) slog.Attr {
	if r.Name == "" {
		return slog.Attr{} // handlers leave it out
	}
	return slog.String("name", r.Name)
}

func notReady(e *entry, why string) *Replica {
	n := describe(e.worker.addr, e.worker.options)
	n.Joined, n.Why, n.Models = e.current.Joined, why, e.current.Models
	return n
}

// named returns the models of Snapshot.Named, in replicas without addresses: those of the last
// process count as long as a source has named no replicas yet.
func (r *roster) named() (out []*Replica) {
	o := r.fleet.now()
	for _, d := range o.DNS {
		out = append(out, describe("", d.Replica))
	}
	for _, t := range o.Templates {
		out = append(out, describe("", t))
	}
	if slices.ContainsFunc(r.sources, func(w *watched) bool { return !w.spoken }) {
		for _, models := range r.fleet.served {
			out = append(out, &Replica{Reported: Reported{Models: models}})
		}
	}
	return out
}

// publish makes the entries visible to readers.
func (r *roster) publish() {
	settled := !slices.ContainsFunc(r.sources, r.waitsFor)
	replicas := make([]*Replica, 0, len(r.entries))
	for _, addr := range r.addresses() {
		replicas = append(replicas, r.entries[addr].current)
		settled = settled && r.entries[addr].asked
	}
	next := newSnapshot(replicas, settled)
	next.Named = r.named()
	next.Notes = append(next.Notes, r.notes()...)
	r.fleet.snapshot.Store(next)
	r.stale = false
}
