package reporter

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/indexrpc"
)

// Reporter reports one holder to a remote index. It is a kvevents.Sink: Begin and Apply
// never wait for the network. If the index did not accept a report, or has lost the
// replica, the reporter reports all blocks again from its own record.
type Reporter struct {
	o      Options
	c      indexpb.CacheIndexClient
	holder index.Holder

	mu          sync.Mutex
	incarnation uint64
	mirror      *mirror
	queue       []change
	since       int64  // when the first of queue was received, Unix milliseconds; 0 = queue is empty
	stale       bool   // all blocks must be reported again
	doubt       string // why events may not tell everything; "" if they do
	current     int64  // when the subscriber's stream was last complete, Unix milliseconds; 0 = never
	status      Status

	wake  chan struct{}
	self  string // tells this reporter from another one of the same holder
	epoch uint64 // of the index that answered last; Run's own
}

// Status is a reporter's status.
type Status struct {
	Blocks  int    // held, by its own record
	Flushes uint64 // successful
	Resyncs uint64 // of them, how many reported everything
	Errors  uint64 // failed calls
	Dropped uint64 // blocks not reported: too many waited for their parent
	Behind  bool   // all blocks have to be reported (again)
}

// change is one reportable change: a cache group, a new or removed block, a clear
// (ALL_CLEARED), or another doubt (REPLICA_UPDATED).
type change struct {
	group *cacheGroup
	b     block
	gone  bool
	event indexpb.EventType // not set: of a group or a block
}

// queueLimit bounds the changes that wait for an index that does not answer. Beyond it
// all blocks are reported again, from the record.
const queueLimit = 1 << 18

// prefixesPerMessage bounds a message: 64 prefixes of at most 256 blocks are about
// 400 KB.
const (
	prefixesPerMessage = 64
	blocksPerPrefix    = 256
)

// blocksPerStream bounds the data that must arrive within one Timeout: about 1 MB.
const blocksPerStream = 1 << 16

// New makes a reporter of h.
func New(c indexpb.CacheIndexClient, h index.Holder, o Options) *Reporter {
	o.complete()
	return &Reporter{o: o, c: c, holder: h, mirror: newMirror(), stale: true, self: rand.Text(), wake: make(chan struct{}, 1)}
}

// Status returns the reporter's state.
func (r *Reporter) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Blocks, r.status.Behind = len(r.mirror.held), r.stale
	return r.status
}

// Begin implements kvevents.Sink.
func (r *Reporter) Begin(index.Holder) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incarnation++
	r.doubt = ""
	r.clear()
	return r.incarnation
}

// Apply implements kvevents.Sink.
func (r *Reporter) Apply(b *index.Batch) (res index.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Incarnation != r.incarnation {
		return res, index.ErrIncarnation
	}
	r.current = r.o.Now().UnixMilli()
	for i := range b.Events { // full attention is often the last one of a batch
		if e := &b.Events[i]; e.Kind == index.Stored {
			r.mirror.noteGroup(*e, func(g *cacheGroup) { r.enqueue(change{group: g}) })
		}
	}
	for _, e := range b.Events {
		switch e.Kind {
		case index.Cleared:
			r.clear()
		case index.Removed:
			r.mirror.remove(e, func(b *block) {
				res.Removed++
				if r.mirror.last(b) {
					r.enqueue(change{b: *b, gone: true})
				}
			})
		case index.Stored:
			res.Dropped += r.mirror.store(e, b.Full, func(b *block) {
				res.Stored++
				if r.mirror.first(b) {
					r.enqueue(change{b: *b})
				}
			})
		}
	}
	if doubt := r.doubtOf(b); doubt != r.doubt {
		r.doubt = doubt
		r.enqueue(change{event: indexpb.EventType_REPLICA_UPDATED})
	}
	r.status.Dropped += uint64(res.Dropped)
	return res, nil
}

// doubtPaths is the doubt about an adapter's keys.
const doubtPaths = "it has adapters, and its sidecar does not know from which paths they were loaded: under a name loaded again from another path nothing is hit"

// doubtOf returns why the events so far may not tell everything, with those of a batch that the
// record has.
func (r *Reporter) doubtOf(b *index.Batch) string {
	switch doubt := cmp.Or(b.Doubt, r.doubt); {
	case doubt != "":
		return doubt
	case r.mirror.twins:
		return index.DoubtTwins
	}
	for i := range b.Events {
		if e := &b.Events[i]; e.Content != nil && e.Scope.LoRA.Set && e.Scope.LoRA.Path == "" {
			return doubtPaths
		}
	}
	return ""
}

// clear drops all blocks and all waiting changes.
func (r *Reporter) clear() {
	r.mirror.clear()
	r.queue, r.since = append(r.queue[:0], change{event: indexpb.EventType_ALL_CLEARED}), r.o.Now().UnixMilli()
	r.notify()
}

// Resync makes Run report all blocks again, for callers that have seen the index lose
// them.
func (r *Reporter) Resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale, r.queue = true, nil
	r.notify()
}

func (r *Reporter) enqueue(c change) {
	if r.stale {
		return // all blocks will be reported
	}
	if len(r.queue) >= queueLimit {
		r.queue, r.stale = nil, true
		return
	}
	if len(r.queue) == 0 {
		r.since = r.o.Now().UnixMilli()
	}
	r.queue = append(r.queue, c)
	if c.gone || c.event != 0 || len(r.queue) == 1 {
		r.notify()
	}
}

func (r *Reporter) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the changes to report now, the time at which the first of them was
// received (0 = now), and whether they are all blocks.
func (r *Reporter) take() (changes []change, at int64, resync bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, r.since = r.since, 0
	if r.stale && r.o.Up != nil && len(r.mirror.held) > 0 && !r.o.Up() {
		return nil, 0, false // its blocks may be gone, which only the publisher tells
	}
	if r.stale {
		r.stale, r.queue = false, nil
		changes = append(changes, change{event: indexpb.EventType_ALL_CLEARED})
		for _, g := range r.mirror.groups {
			changes = append(changes, change{group: g})
		}
		for _, b := range r.mirror.all() {
			changes = append(changes, change{b: *b})
		}
		return changes, 0, true
	}
	changes, r.queue = r.queue, nil
	return changes, at, false
}

// urgent reports whether a removal, a clear, a doubt or a full report waits: only adds may
// be collected.
func (r *Reporter) urgent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.queue {
		if c.gone || c.event != 0 {
			return true
		}
	}
	return r.stale
}

// Run reports until ctx ends, then once more within Timeout. It logs and counts errors of
// the index, and goes on.
func (r *Reporter) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.last()
		case <-timer.C:
		case <-r.wake:
			r.gather(ctx)
			if ctx.Err() != nil {
				return r.last()
			}
		}
		wait := r.o.Ping
		if err := r.Flush(ctx); err != nil && ctx.Err() == nil {
			wait = r.o.Backoff
			r.o.Log.Warn("reporting to the index failed; all blocks are reported again when it answers", "replica", r.holder.Replica, "error", err)
		}
		timer.Reset(wait)
	}
}

// gather collects adds for a Window, or until a change is urgent.
func (r *Reporter) gather(ctx context.Context) {
	window := time.NewTimer(r.o.Window)
	defer window.Stop()
	for !r.urgent() {
		select {
		case <-r.wake:
		case <-window.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// last flushes at shutdown, on a context of its own.
func (r *Reporter) last() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.o.Timeout)
	defer cancel()
	if err := r.Flush(ctx); err != nil {
		return fmt.Errorf("final report to the index: %w", err)
	}
	return nil
}

// Flush sends the waiting changes. Without any it checks whether the index still has the
// replica. A caller uses either Run or Flush.
func (r *Reporter) Flush(ctx context.Context) error {
	changes, at, resync := r.take()
	err := r.send(ctx, changes, at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.status.Errors++
		r.stale, r.queue = true, nil
		return err
	}
	if len(changes) > 0 {
		r.status.Flushes++
	}
	if resync {
		r.status.Resyncs++
	}
	return nil
}

var errIndexRestarted = errors.New("the index has restarted")

// checkEpoch records the epoch of an answer, and fails if the index has lost the replica.
// all is set for a report of all blocks, which an empty index can take too.
func (r *Reporter) checkEpoch(epoch uint64, first, all bool) error {
	again := !all && (r.epoch != epoch || first)
	r.epoch = epoch
	if again {
		r.notify()
		return errIndexRestarted
	}
	return nil
}

// send sends changes in order: all adds in one stream, then all evictions in one, each an
// event of its own. at is the time at which the first of them was received, in Unix
// milliseconds; 0 is the server's now.
func (r *Reporter) send(ctx context.Context, changes []change, at int64) error {
	if len(changes) == 0 {
		return r.event(ctx, indexpb.EventType_REPLICA_UPDATED, false)
	}
	changes = addsFirst(changes)
	for len(changes) > 0 {
		c := changes[0]
		switch {
		case c.event != 0:
			if err := r.event(ctx, c.event, c.event == indexpb.EventType_ALL_CLEARED); err != nil {
				return err
			}
			changes = changes[1:]
		default:
			n := 1
			for n < len(changes) && changes[n].gone == c.gone && changes[n].event == 0 && n < blocksPerStream {
				n++
			}
			send := r.add
			if c.gone {
				send = r.evict
			}
			if err := send(ctx, changes[:n], at); err != nil {
				return err
			}
			changes = changes[n:]
		}
	}
	return nil
}

// addsFirst puts all adds before all removals, so that a burst of both costs one stream,
// not one for each turn. The last change of a block counts: a block that was stored again
// is not removed. A block that is removed later is still added, for the blocks chained on
// it. A clear is always the first change.
func addsFirst(changes []change) []change {
	last := make(map[blockID]int, len(changes))
	for i, c := range changes {
		last[c.b.reported()] = i
	}
	out, gone := make([]change, 0, len(changes)), []change(nil)
	for i, c := range changes {
		switch {
		case !c.gone:
			out = append(out, c)
		case last[c.b.reported()] == i:
			gone = append(gone, c)
		}
	}
	return append(out, gone...)
}

func (r *Reporter) event(ctx context.Context, what indexpb.EventType, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	q := &indexpb.PublishEventRequest{Type: what, ReplicaId: r.holder.Replica, Rank: int32(r.holder.Rank), Tenant: r.o.Tenant, Model: r.o.Model}
	if r.epoch == 0 && what == indexpb.EventType_ALL_CLEARED { // of the whole rank: a reporter before this one may have had another model
		q.Tenant, q.Model = "", ""
	}
	r.mu.Lock()
	q.Doubt = r.doubt
	if what == indexpb.EventType_REPLICA_UPDATED {
		q.Current, q.TimestampMs, q.SentMs = r.current > 0, r.current, r.o.Now().UnixMilli()
	}
	r.mu.Unlock()
	out, err := r.c.PublishEvent(metadata.AppendToOutgoingContext(ctx, indexrpc.ReporterKey, r.self), q)
	if err != nil {
		return err
	}
	return r.checkEpoch(out.GetEpoch(), out.GetFirst(), all)
}

// evict reports removed blocks in one stream, bounded in time.
func (r *Reporter) evict(ctx context.Context, changes []change, at int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	stream, err := r.c.StreamEvents(ctx)
	if err != nil {
		return err
	}
	for i := range changes {
		b := &changes[i].b
		err := stream.Send(&indexpb.PublishEventRequest{
			Type: indexpb.EventType_PREFIX_EVICTED, ReplicaId: r.holder.Replica, Rank: int32(r.holder.Rank),
			Tenant: b.scope.Tenant, Model: b.scope.Model, HashScheme: b.scope.Scheme, BlockHash: hashOf(b.key),
			Tier: indexpb.Tier(b.id.tier), Group: int32(b.id.group), TimestampMs: at,
		})
		if err != nil {
			break // the reason comes with CloseAndRecv
		}
	}
	out, err := stream.CloseAndRecv()
	if err != nil {
		return err
	}
	return r.checkEpoch(out.GetEpoch(), out.GetFirst(), false)
}

// add sends new blocks in one stream, bounded in time.
func (r *Reporter) add(ctx context.Context, changes []change, at int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	stream, err := r.c.StreamCacheState(ctx)
	if err != nil {
		return err
	}
	for len(changes) > 0 {
		var q *indexpb.ReportCacheStateRequest
		q, changes = r.message(changes)
		q.TimestampMs, q.SentMs = at, r.o.Now().UnixMilli()
		if err := stream.Send(q); err != nil {
			break // the reason comes with CloseAndRecv
		}
	}
	out, err := stream.CloseAndRecv()
	if err != nil {
		return err
	}
	return r.checkEpoch(out.GetEpoch(), out.GetFirst(), false)
}

// scope returns the scope of the reported group or block.
func (c *change) scope() index.Scope {
	if c.group != nil {
		return c.group.scope
	}
	return c.b.scope
}

// message returns a message with the first changes of one tenant, model and scheme, and
// the other changes.
func (r *Reporter) message(changes []change) (*indexpb.ReportCacheStateRequest, []change) {
	s := changes[0].scope()
	q := &indexpb.ReportCacheStateRequest{ReplicaId: r.holder.Replica, Rank: int32(r.holder.Rank), Tenant: s.Tenant, Model: s.Model, HashScheme: s.Scheme}
	for len(changes) > 0 && len(q.Prefixes) < prefixesPerMessage {
		if of := changes[0].scope(); of.Tenant != s.Tenant || of.Model != s.Model || of.Scheme != s.Scheme {
			break
		}
		if g := changes[0].group; g != nil {
			q.Prefixes = append(q.Prefixes, g.announcement())
			changes = changes[1:]
			continue
		}
		first := &changes[0].b
		run := []*block{first}
		for len(run) < len(changes) && len(run) < blocksPerPrefix && changes[len(run)].group == nil && changes[len(run)].b.follows(run[len(run)-1]) {
			run = append(run, &changes[len(run)].b)
		}
		q.Prefixes = append(q.Prefixes, prefix(run))
		changes = changes[len(run):]
	}
	return q, changes
}

func hashOf(key uint64) []byte { return binary.BigEndian.AppendUint64(nil, key) }
