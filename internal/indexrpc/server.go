package indexrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"warmroute/index"
	"warmroute/index/indexpb"
)

// Options configure a Server.
type Options struct {
	// TTL is the age at which evidence is worth nothing in a ranking; it should be
	// the index's own ReplicaTTL, which is the default.
	TTL time.Duration
	Now func() time.Time // default index.Now
	// Cursors returns the places of the publishers that the index's own process
	// follows, for StreamSnapshot; nil = there are none.
	Cursors func() []index.Cursor
	// Empty reports whether a replica has discarded its blocks in its sleep, so that reports of them are
	// not stored. Its own events tell so only after it wakes. nil: no replica has.
	Empty func(replica string) bool
}

// Server serves one index. Create it with New.
type Server struct {
	indexpb.UnimplementedCacheIndexServer

	x       *index.Index
	o       Options
	epoch   uint64
	ready   atomic.Bool
	opaque  opaque
	metrics *metrics
	seed    maphash.Seed // of the keys of long hashes

	mu        sync.RWMutex
	reporters map[index.Holder]*reporter
}

// reporter is the state of one holder's reporter besides the blocks.
type reporter struct {
	mu          sync.Mutex // held over a report: deltas apply one after the other
	incarnation uint64

	seen  atomic.Int64 // the end of its last call, Unix milliseconds; 0 = never
	fresh atomic.Int64 // the time of the newest report of blocks, Unix nanoseconds; 0 = there was none
	stats atomic.Pointer[indexpb.ReplicaStats]
	about atomic.Pointer[subject] // of the last report or event with a model; nil = none yet
	selves
}

// freshen records evidence about the reported blocks. r.mu is held.
func (r *reporter) freshen(at time.Time) { r.fresh.Store(max(r.fresh.Load(), at.UnixNano())) }

// subject is the tenant and the model of a report.
type subject struct{ tenant, model string }

// drainTime bounds the calls under way at the end of Serve.
const drainTime = 5 * time.Second

// New makes a server of x.
func New(x *index.Index, o Options) *Server {
	o.TTL = cmp.Or(max(o.TTL, 0), index.DefaultReplicaTTL)
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Cursors == nil {
		o.Cursors = func() []index.Cursor { return nil }
	}
	if o.Empty == nil {
		o.Empty = func(string) bool { return false }
	}
	s := &Server{x: x, o: o, epoch: rand.Uint64() | 1, reporters: make(map[index.Holder]*reporter), seed: maphash.MakeSeed()}
	s.opaque = opaque{tokens: make(map[opaqueKey]opaqueEntry), limit: opaqueLimit}
	s.metrics = newMetrics(s)
	return s
}

// Ready reports whether the server is serving: false before Serve, and again
// after any return of it.
func (s *Server) Ready() bool { return s.ready.Load() }

// Serve answers calls on l, with reflection, until ctx ends or l fails.
func (s *Server) Serve(ctx context.Context, l net.Listener, options ...grpc.ServerOption) error {
	g := grpc.NewServer(options...)
	indexpb.RegisterCacheIndexServer(g, s)
	reflection.Register(g)
	s.ready.Store(true)
	defer s.ready.Store(false)
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		s.ready.Store(false)
		force := time.AfterFunc(drainTime, g.Stop)
		defer force.Stop()
		g.GracefulStop()
	})
	err := g.Serve(l)
	if !stop() {
		<-done
		return nil
	}
	g.Stop()
	return fmt.Errorf("index service: %w", err)
}

// ReportCacheState implements the contract.
func (s *Server) ReportCacheState(_ context.Context, q *indexpb.ReportCacheStateRequest) (*indexpb.ReportCacheStateResponse, error) {
	out := &indexpb.ReportCacheStateResponse{Epoch: s.epoch}
	if err := s.report(q, out); err != nil {
		return nil, err
	}
	return out, nil
}

// StreamCacheState implements the contract.
func (s *Server) StreamCacheState(in grpc.ClientStreamingServer[indexpb.ReportCacheStateRequest, indexpb.ReportCacheStateResponse]) error {
	return collect(in, &indexpb.ReportCacheStateResponse{Epoch: s.epoch}, s.report)
}

// collect takes every message of a stream and answers once, at its end.
func collect[Q, R any](in grpc.ClientStreamingServer[Q, R], out *R, take func(*Q, *R) error) error {
	for {
		q, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return in.SendAndClose(out)
		}
		if err != nil {
			return err
		}
		if err := take(q, out); err != nil {
			return err
		}
	}
}

// report applies one delta and adds its counts to out.
func (s *Server) report(q *indexpb.ReportCacheStateRequest, out *indexpb.ReportCacheStateResponse) error {
	h, err := holderOf(q.GetReplicaId(), q.GetRank())
	if err != nil {
		return err
	}
	if q.GetModel() == "" && q.GetHashScheme() != "" && len(q.GetPrefixes()) > 0 {
		return status.Error(codes.InvalidArgument, "model: must not be empty where prefixes are reported")
	}
	r := s.reporter(h)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.seen.Store(s.o.Now().UnixMilli()) }()
	if q.GetStats() != nil {
		r.stats.Store(ownStats(q.GetStats(), h))
	}
	r.about.Store(&subject{q.GetTenant(), q.GetModel()})
	events, dropped := s.delta(q)
	batch, at := index.Batch{Holder: h, Full: true, Events: events}, aliveOnly
	if len(q.GetPrefixes()) > 0 {
		at = s.at(q.GetTimestampMs(), q.GetSentMs())
		if now := s.o.Now(); now.Sub(at) >= s.o.TTL {
			at = now // reporters send a change sooner than the TTL, so this one's clock is wrong
		}
	}
	result, first, err := s.apply(r, &batch)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		r.freshen(at)
	}
	out.Stored += uint64(result.Stored)
	out.Dropped += uint64(result.Dropped) + dropped
	out.First = out.First || first
	return nil
}

// apply applies a batch in the reporter's incarnation, begun now if the index has none
// (any more). r.mu is held.
func (s *Server) apply(r *reporter, b *index.Batch) (result index.Result, first bool, err error) {
	for range 2 {
		if r.incarnation == 0 {
			r.incarnation, first = s.x.Begin(b.Holder), true
		}
		b.Incarnation = r.incarnation
		result, err = s.x.Apply(b)
		if !errors.Is(err, index.ErrIncarnation) {
			break
		}
		r.incarnation = 0
	}
	if err != nil {
		return result, first, status.Error(codes.Unavailable, err.Error())
	}
	return result, first, nil
}

// PublishEvent implements the contract.
func (s *Server) PublishEvent(ctx context.Context, q *indexpb.PublishEventRequest) (*indexpb.PublishEventResponse, error) {
	out := &indexpb.PublishEventResponse{Epoch: s.epoch}
	if err := s.publish(q, out); err != nil {
		return nil, err
	}
	if h, err := holderOf(q.GetReplicaId(), q.GetRank()); err == nil {
		s.called(ctx, h)
	}
	return out, nil
}

// StreamEvents implements the contract.
func (s *Server) StreamEvents(in grpc.ClientStreamingServer[indexpb.PublishEventRequest, indexpb.PublishEventResponse]) error {
	return collect(in, &indexpb.PublishEventResponse{Epoch: s.epoch}, s.publish)
}

// publish applies one event and adds its counts to out.
func (s *Server) publish(q *indexpb.PublishEventRequest, out *indexpb.PublishEventResponse) error {
	h, err := holderOf(q.GetReplicaId(), q.GetRank())
	if err != nil {
		return err
	}
	if q.GetType() == indexpb.EventType_EVENT_UNSPECIFIED || indexpb.EventType_name[int32(q.GetType())] == "" {
		return status.Errorf(codes.InvalidArgument, "type %d: not an event", q.GetType())
	}
	if q.GetType() == indexpb.EventType_PREFIX_ADDED {
		return nil
	}
	batch, at := index.Batch{Holder: h, Full: true}, aliveOnly
	switch q.GetType() {
	case indexpb.EventType_REPLICA_UPDATED:
		if q.GetCurrent() {
			at = s.at(q.GetTimestampMs(), q.GetSentMs())
		}
	case indexpb.EventType_PREFIX_EVICTED:
		hashes, err := s.evicted(q)
		if err != nil {
			return err
		}
		batch.Events = []index.Event{{Kind: index.Removed, Part: partOf(q), Tier: index.Tier(q.GetTier()), Scope: index.Scope{Group: int(q.GetGroup())}, Hashes: hashes}}
	case indexpb.EventType_ALL_CLEARED:
		batch.Events = []index.Event{{Kind: index.Cleared, Part: partOf(q)}}
	}
	r := s.reporter(h)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.seen.Store(s.o.Now().UnixMilli()) }()
	if q.GetModel() != "" || r.about.Load() == nil { // otherwise the last report has more
		r.about.Store(&subject{q.GetTenant(), q.GetModel()})
	}
	if q.GetStats() != nil {
		r.stats.Store(ownStats(q.GetStats(), h))
	}
	result, first, err := s.apply(r, &batch)
	if err != nil {
		return err
	}
	if at != aliveOnly && r.fresh.Load() != 0 { // all reported blocks still hold
		r.freshen(at)
	}
	if at != aliveOnly || q.GetType() == indexpb.EventType_ALL_CLEARED {
		s.x.SetDoubt(h, printable(q.GetDoubt()[:min(len(q.GetDoubt()), maxDoubt)]))
	}
	out.First = out.First || first
	out.Removed += uint64(result.Removed)
	return nil
}

// maxDoubt bounds the bytes of a doubt that are kept.
const maxDoubt = 1024

// printable returns the words of a text, without what moves a terminal's cursor.
func printable(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r) }), " ")
}

// partOf returns the part of a replica's blocks that an event names; nil: all of them.
func partOf(q *indexpb.PublishEventRequest) *index.Part {
	p := index.Part{Tenant: q.GetTenant(), Model: q.GetModel(), Scheme: q.GetHashScheme()}
	if p == (index.Part{}) {
		return nil
	}
	return &p
}

// evicted returns the keys of the blocks that an event reports as gone.
func (s *Server) evicted(q *indexpb.PublishEventRequest) (keys []uint64, err error) {
	hashes := q.GetBlockHashes()
	if len(q.GetBlockHash()) > 0 {
		hashes = append([][]byte{q.GetBlockHash()}, hashes...)
	}
	if len(hashes) == 0 {
		return nil, status.Error(codes.InvalidArgument, "block_hash: must not be empty without block_hashes")
	}
	for _, hash := range hashes {
		key, ok := s.key(hash)
		if !ok {
			return nil, status.Error(codes.InvalidArgument, "block_hashes: must not have an empty one")
		}
		keys = append(keys, uint64(key))
	}
	return keys, nil
}

// reporter returns the state of h. It makes an absent one.
func (s *Server) reporter(h index.Holder) *reporter {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reporters[h]
	if r == nil {
		r = new(reporter)
		s.reporters[h] = r
		s.forget()
	}
	return r
}

// forget drops reporters that were silent for longer than the TTL; the index expires
// their blocks. Each new reporter calls it, so the server keeps at most the reporters
// of one TTL. s.mu is held.
func (s *Server) forget() {
	oldest := s.o.Now().Add(-s.o.TTL).UnixMilli()
	for h, r := range s.reporters {
		if seen := r.seen.Load(); seen != 0 && seen < oldest {
			delete(s.reporters, h)
		}
	}
}

// reporterOf returns the state of h, nil if it has never reported.
func (s *Server) reporterOf(h index.Holder) *reporter {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reporters[h]
}

// statsOf returns the last stats of a reporter, nil if it sent none.
func (r *reporter) statsOf() *indexpb.ReplicaStats {
	if r == nil {
		return nil
	}
	return r.stats.Load()
}

func holderOf(replica string, rank int32) (index.Holder, error) {
	if replica == "" {
		return index.Holder{}, status.Error(codes.InvalidArgument, "replica_id: must not be empty")
	}
	if rank < 0 {
		return index.Holder{}, status.Errorf(codes.InvalidArgument, "rank %d: must not be negative", rank)
	}
	return index.Holder{Replica: replica, Rank: int(rank)}, nil
}

// ownStats copies stats under the reporting replica's own name.
func ownStats(in *indexpb.ReplicaStats, h index.Holder) *indexpb.ReplicaStats {
	return &indexpb.ReplicaStats{ReplicaId: h.Replica, HitRate: unit(in.GetHitRate()), Pressure: unit(in.GetPressure()),
		CacheBlocks: in.GetCacheBlocks(), CacheUsage: unit(in.GetCacheUsage()), Running: in.GetRunning(), Waiting: in.GetWaiting()}
}

// unit clamps v to [0, 1]; NaN becomes 0.
func unit(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}
