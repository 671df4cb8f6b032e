package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"warmroute/index"
	"warmroute/internal/bound"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents"
)

// Options configures a Feed.
type Options struct {
	ProbeEvery  time.Duration // see kvevents.Options; 0 = its default
	RetryAfter  time.Duration // see kvevents.Options; 0 = its default
	SyncTimeout time.Duration // a replica that has not caught up by then counts as synced anyway; default 10 s
	Now         func() time.Time
	Log         *slog.Logger
	// OnLeave is called once for every replica that left, after its subscriptions
	// have ended and the index has removed it.
	OnLeave func(replica string)
	// Applied, when set, is called with every batch after it was applied; the
	// batch is valid during the call only. Calls for one holder never overlap,
	// also across a replica's departure and return.
	Applied func(b *index.Batch)
	// Following, when set, is called when a rank's events begin or cease to be received; at
	// first they are not.
	Following func(h index.Holder, following bool)
	// AdapterPath, when set, returns where a replica has loaded an adapter from, "" if that is
	// unknown; with ask, by the replica's own answer, for which it may wait until ctx ends.
	AdapterPath func(ctx context.Context, replica, name string, ask bool) string
	// Snapshot returns the fleet, whose ready replicas have a state each; nil: there are none.
	Snapshot func() *fleet.Snapshot
}

// Feed is the index's supply of KV events.
type Feed struct {
	o     Options
	index *index.Index

	ctx    context.Context // ends every subscription
	cancel context.CancelFunc
	wg     sync.WaitGroup

	groupsMu sync.Mutex // taken before mu
	mu       sync.Mutex // guards the fields below, never held while anything waits
	replicas map[string]*supply
	layouts  map[string]*cachelayout.Layout // by model
	engines  map[string]engines             // by model
	resume   map[index.Holder]index.Cursor  // restored holders that no subscription has taken over yet
}

// supply is the subscriptions of one replica.
type supply struct {
	replica *fleet.Replica
	joined  time.Time
	subs    []*kvevents.Subscriber
	refused error // why a subscription could not be made
	cancel  context.CancelFunc
	left    chan struct{} // closed when all of it is gone
}

// New returns a feed of x.
func New(x *index.Index, o Options) *Feed {
	o.SyncTimeout = cmp.Or(o.SyncTimeout, 10*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Applied == nil {
		o.Applied = func(*index.Batch) {}
	}
	if o.OnLeave == nil {
		o.OnLeave = func(string) {}
	}
	if o.Following == nil {
		o.Following = func(index.Holder, bool) {}
	}
	if o.Snapshot == nil {
		o.Snapshot = func() *fleet.Snapshot { return fleet.NewSnapshot() }
	}
	f := &Feed{o: o, index: x, replicas: map[string]*supply{}, layouts: map[string]*cachelayout.Layout{}, engines: map[string]engines{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Join starts the subscriptions of a replica.
func (f *Feed) Join(r *fleet.Replica) {
	ctx, cancel := context.WithCancel(f.ctx)
	s := &supply{replica: r, joined: f.o.Now(), cancel: cancel, left: make(chan struct{})}
	s.refused = f.subscribe(s)
	if s.refused != nil {
		f.o.Log.Warn("feed: no KV events from replica", "replica", r.Addr, "error", s.refused)
		for _, e := range r.Events {
			f.o.Following(index.Holder{Replica: r.Addr, Rank: e.Rank}, false)
		}
	}
	f.mu.Lock()
	before := f.replicas[r.Addr]
	f.replicas[r.Addr] = s
	f.mu.Unlock()
	f.setGroups(r)
	f.count(r, 1)
	f.wg.Go(func() { f.supply(ctx, s, before) })
}

// Leave ends the subscriptions of a replica and removes it from the index.
func (f *Feed) Leave(r *fleet.Replica) {
	f.mu.Lock()
	s := f.replicas[r.Addr]
	f.mu.Unlock()
	if s != nil {
		s.cancel()
	}
}

// supply runs a replica's subscriptions until it leaves, then removes it.
func (f *Feed) supply(ctx context.Context, s, before *supply) {
	if before != nil {
		<-before.left
	}
	var subs sync.WaitGroup
	for _, sub := range s.subs {
		subs.Go(func() {
			if err := sub.Run(ctx); err != nil && ctx.Err() == nil {
				f.o.Log.Error("feed: subscription ended", "replica", s.replica.Addr, "error", err)
			}
		})
	}
	subs.Wait()
	<-ctx.Done()
	f.depart(s)
}

// depart removes a replica everywhere. Nothing else does.
func (f *Feed) depart(s *supply) {
	f.index.Remove(s.replica.Addr)
	f.o.OnLeave(s.replica.Addr)
	f.groupsMu.Lock() // so that a replica that returns sets its own after this
	f.mu.Lock()
	last := f.replicas[s.replica.Addr] == s
	if last {
		delete(f.replicas, s.replica.Addr)
	}
	f.mu.Unlock()
	if last {
		f.index.SetGroups(s.replica.Addr, nil)
	}
	f.groupsMu.Unlock()
	f.count(s.replica, -1)
	close(s.left)
}

// subscribe makes the subscriptions of every rank, or none.
func (f *Feed) subscribe(s *supply) error {
	r := s.replica
	if len(r.Models) == 0 {
		return nil
	}
	if r.SGLang != nil && !r.SGLang.Chained() {
		return errors.New("SGLang before 0.5.6 publishes hashes of each page alone: update it to 0.5.22 or later")
	}
	room := kvevents.NewRoom()
	for _, e := range r.Events {
		hashes, presume := hashesOf(r)
		holder := index.Holder{Replica: r.Addr, Rank: e.Rank}
		var path func(name string, ask bool) string
		if f.o.AdapterPath != nil {
			path = func(name string, ask bool) string { return f.o.AdapterPath(f.ctx, r.Addr, name, ask) }
		}
		sub, err := kvevents.New(kvevents.Options{
			AdapterPath: path,
			Replica:     r.Addr, Rank: e.Rank, Endpoint: e.Endpoint, ReplayEndpoint: e.ReplayEndpoint, Topic: e.Topic,
			Tenant: r.Tenant, Model: r.Models[0].Base, Scheme: index.SchemeTokens, Adapter: adapterOf(r),
			Hashes: hashes, Unit: unitOf(r), Presume: presume,
			ProbeEvery: f.o.ProbeEvery, RetryAfter: f.o.RetryAfter, Now: f.o.Now, Log: f.o.Log,
			Resume:       f.takeOver(index.Cursor{Holder: holder, Tenant: r.Tenant, Model: r.Models[0].Base, Scheme: index.SchemeTokens}),
			ResumeWithin: f.o.SyncTimeout, Room: room, Empty: r.Empty,
			Forgot:    func(why index.Loss) { f.index.Lose(holder, why) },
			Following: func(following bool) { f.o.Following(holder, following) },
		}, observedIndex{f.index, f.o.Applied})
		if err != nil {
			s.subs = nil
			return err
		}
		s.subs = append(s.subs, sub)
	}
	return nil
}

// adapterOf returns the reader of a replica's events.
func adapterOf(r *fleet.Replica) kvevents.Adapter {
	if r.SGLang != nil {
		return kvevents.SGLang(kvevents.SGLangOptions{Dynamo: r.SGLang.Dynamo()})
	}
	return kvevents.VLLM()
}

// observedIndex is the index with a callback for every applied batch.
type observedIndex struct {
	*index.Index
	applied func(b *index.Batch)
}

func (t observedIndex) Apply(b *index.Batch) (index.Result, error) {
	res, err := t.Index.Apply(b)
	if err == nil {
		t.applied(b)
	}
	return res, err
}

// Run keeps the feed going until ctx ends, then ends every subscription and
// waits for them.
func (f *Feed) Run(ctx context.Context) error {
	<-ctx.Done()
	f.cancel()
	f.wg.Wait()
	return nil
}

// Behind names a replica with a rank that has neither caught up with its events nor
// been waited for long enough, if there is one. It is called more often than Status,
// and allocates nothing.
func (f *Feed) Behind() (addr string, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.o.Now()
	for addr, s := range f.replicas {
		if !s.synced(now, f.o.SyncTimeout) {
			return addr, true
		}
	}
	return "", false
}

// synced reports whether every rank has caught up, or was waited for long enough.
func (s *supply) synced(now time.Time, timeout time.Duration) bool {
	for _, sub := range s.subs {
		if !sub.Status().Synced {
			return now.Sub(s.joined) > timeout
		}
	}
	return true
}

// fullFor is for how long after its last loss a full index is noted.
const fullFor = 10 * time.Minute

// Notes names the ranks whose publishers are ignored because of their messages; those whose events
// cannot be read, have something unknown, tell too little, name another rank or contradict the
// reported block size; the replicas with event sources that are not used; and the replicas whose
// blocks index.max_scopes keeps out; at most bound.MostNotes of each; and what sources says.
func (f *Feed) Notes() []string {
	var paused, refused, full, strange, sized []string
	addf := func(to *[]string, format string, args ...any) { *to = append(*to, fmt.Sprintf(format, args...)) }
	all := f.Status()
	for _, r := range all {
		if r.Scopes.Full && r.Scopes.Refused > 0 {
			addf(&full, "replica %s: blocks of its further adapters, block sizes and cache groups are not indexed: it was the first to name %d scopes, and index.max_scopes allows no more",
				r.Addr, r.Scopes.Made)
		}
		if r.NotUsed != "" {
			addf(&refused, "replica %s: event sources that it reports are not used: %s", r.Addr, r.NotUsed)
		}
		for i := range r.Ranks {
			first, rank := &r.Ranks[0], &r.Ranks[i]
			switch {
			case rank.Paused != 0:
				addf(&paused, "replica %s, rank %d: its KV events are refused or lost again and again, so it counts as empty and is asked again after %v: %s",
					r.Addr, rank.Rank, rank.Paused, rank.LastError)
			case rank.Refused != "" && rank.Lost > 0:
				addf(&strange, "replica %s, rank %d: a batch of its KV events could not be read, and all its known blocks were dropped: %s", r.Addr, rank.Rank, rank.Refused)
			case rank.Groups != nil && rank.Groups.Trust.None:
				addf(&strange, "replica %s, rank %d: %s", r.Addr, rank.Rank, rank.Groups.Trust.Why)
			}
			if first.says() && rank.says() && rank.Said-first.Said != rank.Rank-first.Rank {
				addf(&strange, "replica %s: the KV events of rank %d say that they are of rank %d, and those of rank %d of %d: look at the endpoints in its events",
					r.Addr, first.Rank, first.Said, rank.Rank, rank.Said)
			}
		}
		for _, d := range r.Doubts {
			addf(&strange, "replica %s, rank %d: matches are inexact: %s", r.Addr, d.Rank, d.Why)
		}
		if r.Shown != 0 && r.Block != 0 && r.Shown != r.Block {
			addf(&sized, "replica %s: its KV events have blocks of %d tokens, and its settings or /metrics say %d: the events count", r.Addr, r.Shown, r.Block)
		}
	}
	if n := f.index.Full(fullFor); n > 0 {
		addf(&full, "the index is full: it has dropped %d blocks that replicas still have, to stay within index.max_blocks: raise it", n)
	}
	return slices.Concat(f.sources(all), bound.Notes(full, bound.MostNotes, "replicas have blocks that index.max_scopes keeps out"), bound.Notes(refused, bound.MostNotes, "replicas report event sources that are not used"),
		bound.Notes(paused, bound.MostNotes, "ranks are left alone because of their KV events"), bound.Notes(strange, bound.MostNotes, "ranks have KV events with something unknown"),
		bound.Notes(sized, bound.MostNotes, "replicas have blocks of another size than is reported"))
}

// Replica is the state of one replica's supply.
type Replica struct {
	Addr    string
	Refused error  // why there are no subscriptions, nil otherwise
	NotUsed string // why event sources that it reports are not used; "" if all are
	Scopes  index.ScopeShare
	Block   int // tokens of a block by its settings or /metrics; 0 if they do not say
	Shown   int // the same by its events; 0 if they have not shown it, or its cache has several groups
	Doubts  []Doubt
	Ranks   []Rank
	Synced  bool // caught up on every rank, or given up waiting for that
}

// Doubt is why a rank's events, or those that its sidecar reports, may not tell everything.
type Doubt struct {
	Rank int
	Why  string
}

// Rank is the state of one rank's subscription.
type Rank struct {
	Rank int
	kvevents.Status
	Groups *index.Groups // its cache groups; nil when they were never reported

	computed float64 // tokens of prompts that it had computed when the replica joined
}

// says reports whether the rank's batches name a rank: the same one, or another by a distance that all
// ranks of a replica have in common.
func (r *Rank) says() bool { return r.HasSeq && r.Said >= 0 }

// Status returns every replica's state, sorted by address.
func (f *Feed) Status() []Replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.o.Now()
	out := make([]Replica, 0, len(f.replicas))
	for addr, s := range f.replicas {
		r := Replica{Addr: addr, Refused: s.refused, NotUsed: s.replica.EventsRefused, Block: s.replica.BlockSize, Shown: f.shown(s.replica), Scopes: f.index.ScopeShare(addr), Synced: s.synced(now, f.o.SyncTimeout)}
		for _, rank := range s.replica.Ranks {
			if why := f.index.Doubt(index.Holder{Replica: addr, Rank: rank}); why != "" {
				r.Doubts = append(r.Doubts, Doubt{rank, why})
			}
		}
		for i, sub := range s.subs {
			st := sub.Status()
			rank := s.replica.Events[i].Rank
			joined, _ := s.replica.LoadOf(rank)
			r.Ranks = append(r.Ranks, Rank{rank, st, f.groups(s.replica, rank), joined.Computed()})
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Replica) int { return strings.Compare(a.Addr, b.Addr) })
	return out
}
