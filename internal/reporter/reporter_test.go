package reporter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/internal/testenv/rpc"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

var engineScope = index.Scope{Model: "m", Scheme: "engine", BlockSize: 128}

func stored(parent uint64, hashes ...uint64) index.Event {
	return index.Event{Kind: index.Stored, Scope: engineScope, HasParent: parent != 0, Parent: parent, Hashes: hashes}
}

func removed(hashes ...uint64) index.Event { return index.Event{Kind: index.Removed, Hashes: hashes} }

func reporting(t *testing.T, b *bench, o Options) (*Reporter, *tap) {
	t.Helper()
	c := &tap{CacheIndexClient: b.c}
	if o.Now == nil {
		o.Now = b.clock
	}
	r := New(c, index.Holder{Replica: "r"}, o)
	r.Begin(index.Holder{})
	return r, c
}

func apply(t *testing.T, r *Reporter, events ...index.Event) {
	t.Helper()
	must.Get(r.Apply(&index.Batch{Incarnation: r.incarnation, Events: events}))(t)
}

func flush(t *testing.T, r *Reporter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must.Do(t, r.Flush(ctx))
}

func TestReporterOrder(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{})
	flush(t, r)
	if got := c.take(); got != "clear" {
		t.Fatalf("first %q: a new reporter's record replaces whatever the index had", got)
	}
	apply(t, r, stored(0, 1, 2), stored(2, 3), removed(3, 2), stored(1, 4), stored(99, 100, 101))
	flush(t, r)
	if got, want := c.take(), "stream +1@128,2@256,3@384 +4@256 +100@128,101@256 events -3 -2"; got != want {
		t.Errorf("told %q\nwant %q", got, want)
	}
	b.want(ask("engine", 1, 2), "r:128")
	// A block that came back is not removed.
	apply(t, r, stored(1, 2), removed(2), stored(1, 2, 3))
	flush(t, r)
	if got, want := c.take(), "stream +2@256 +2@256,3@384"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	b.want(ask("engine", 1, 3), "r:384")
	// A second copy is not reported, nor is the end of one of two.
	apply(t, r, stored(0, 1), removed(1))
	flush(t, r)
	if got := c.take(); got != "ping" {
		t.Errorf("told %q, want nothing but a sign of life", got)
	}
	apply(t, r, removed(1))
	flush(t, r)
	if got := c.take(); got != "events -1" {
		t.Errorf("told %q, want the end of the last copy", got)
	}
}

func TestReporterClearSupersedes(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{})
	flush(t, r)
	c.take()
	apply(t, r, stored(0, 1, 2), removed(1), index.Event{Kind: index.Cleared}, stored(0, 5))
	flush(t, r)
	if got, want := c.take(), "clear stream +5@128"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if s := r.Status(); s.Blocks != 1 {
		t.Errorf("%+v", s)
	}
}

// TestReporterClearsTheRank: a replica that comes back with another model leaves nothing of the
// first one.
func TestReporterClearsTheRank(t *testing.T) {
	b := serve(t)
	must.Get(b.c.ReportCacheState(b.ctx(), &pb.ReportCacheStateRequest{ReplicaId: "r", Model: "m", HashScheme: "engine",
		Prefixes: []*pb.Prefix{{BlockHashes: ask("engine", 100, 2).GetBlockHashes(), BlockSize: 128}}}))(t)
	r, _ := reporting(t, b, Options{Tenant: "blue", Model: "other"})
	flush(t, r)
	b.want(ask("engine", 100, 2), "NO_MATCH")
}

// TestReporterTimestamps: a report is as old as its first change, the next one
// starts over, and blocks reported again are reported as of now.
func TestReporterTimestamps(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{Now: b.clock})
	flush(t, r)
	first := b.clock().UnixMilli()
	apply(t, r, stored(0, 1))
	b.advance(70 * time.Millisecond)
	apply(t, r, stored(1, 2), removed(1))
	b.advance(time.Second)
	flush(t, r)
	second := b.clock().UnixMilli()
	apply(t, r, stored(0, 1))
	flush(t, r)
	r.Resync()
	flush(t, r)
	if want := []int64{first, first, second, 0}; !slices.Equal(c.ats, want) {
		t.Errorf("timestamps %v, want %v: adds, removals, adds after the flush, everything again", c.ats, want)
	}
}

// TestReporterOutage: after an outage everything is reported, from the record.
func TestReporterOutage(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{})
	apply(t, r, stored(0, 1, 2, 3))
	flush(t, r)
	c.set(true)
	apply(t, r, removed(3), stored(2, 4))
	if err := r.Flush(t.Context()); err == nil {
		t.Fatal("no error while the index is away")
	}
	apply(t, r, stored(4, 5))
	c.set(false)
	c.take()
	flush(t, r)
	if got, want := c.take(), "clear stream +1@128,2@256,4@384,5@512"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	q := ask("engine", 1, 2)
	q.BlockHashes = append(q.BlockHashes, binary.BigEndian.AppendUint64(nil, 4), binary.BigEndian.AppendUint64(nil, 5))
	b.want(q, "r:512")
	if s := r.Status(); s.Errors != 1 || s.Resyncs != 2 || s.Blocks != 4 {
		t.Errorf("%+v", s)
	}
}

// TestReporterIndexRestart: another index behind the same address gets everything.
func TestReporterIndexRestart(t *testing.T) {
	one, two := serve(t), serve(t)
	r, c := reporting(t, one, Options{})
	apply(t, r, stored(0, 1, 2, 3))
	flush(t, r)
	c.CacheIndexClient = two.c
	if err := r.Flush(t.Context()); !errors.Is(err, errIndexRestarted) {
		t.Fatalf("error %v, want %v", err, errIndexRestarted)
	}
	flush(t, r)
	two.want(ask("engine", 1, 3), "r:384")
	// And an index that let the replica go, though it lives on.
	two.x.Remove("r")
	if err := r.Flush(t.Context()); !errors.Is(err, errIndexRestarted) {
		t.Fatalf("error %v, want %v", err, errIndexRestarted)
	}
	flush(t, r)
	two.want(ask("engine", 1, 3), "r:384")
}

// TestReporterWithoutPublisher: an index that let the replica go gets its blocks again when the publisher
// is connected, which tells whether they are still there.
func TestReporterWithoutPublisher(t *testing.T) {
	b, up := serve(t), true
	r, c := reporting(t, b, Options{Up: func() bool { return up }})
	apply(t, r, stored(0, 1, 2, 3))
	flush(t, r)
	up = false
	b.x.Remove("r")
	if err := r.Flush(t.Context()); !errors.Is(err, errIndexRestarted) {
		t.Fatalf("error %v, want %v", err, errIndexRestarted)
	}
	c.take()
	for range 2 {
		flush(t, r)
	}
	if got := c.take(); strings.Contains(got, "stream") || !r.Status().Behind {
		t.Errorf("told %q without a publisher, %+v", got, r.Status())
	}
	up = true
	flush(t, r)
	b.want(ask("engine", 1, 3), "r:384")
	up = false
	c.take()
	r.Begin(index.Holder{})
	r.Resync()
	if flush(t, r); !strings.HasPrefix(c.take(), "clear") {
		t.Error("that there are no blocks waits for the publisher")
	}
}

// TestReporterTokens: the chain over contents is the index's own.
func TestReporterTokens(t *testing.T) {
	b := serve(t)
	r, _ := reporting(t, b, Options{})
	scope := index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: 2}
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	contents := prefixhash.AppendContents(nil, tokens, prefixhash.Blocks{Size: 2}, nil)
	event := func(parent uint64, from, to int) index.Event {
		return index.Event{Kind: index.Stored, Scope: scope, HasParent: parent != 0, Parent: parent,
			Hashes: []uint64{11, 12, 13, 14}[from:to], Content: contents[from:to]}
	}
	apply(t, r, event(11, 1, 3), event(13, 3, 4)) // their parent is not held
	flush(t, r)
	keys := prefixhash.AppendTokens(nil, prefixhash.TokenRoot("m", prefixhash.LoRA{}), tokens, prefixhash.Blocks{Size: 2}, nil)
	held := func() int32 {
		for _, m := range b.x.Lookup(nil, scope, keys) {
			return m.Blocks
		}
		return 0
	}
	if held() != 0 || r.Status().Blocks != 0 {
		t.Error("blocks without a parent are held")
	}
	apply(t, r, event(0, 0, 1), event(11, 1, 3), event(13, 3, 4))
	flush(t, r)
	if held() != 4 || r.Status().Blocks != 4 {
		t.Errorf("%d blocks matched, %+v", held(), r.Status())
	}
	apply(t, r, removed(13))
	flush(t, r)
	if held() != 2 {
		t.Errorf("%d blocks matched behind a hole", held())
	}
}

// TestReporterRuns: adds gather, a removal does not wait, the end flushes.
func TestReporterRuns(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{Window: time.Hour, Ping: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	until := func(what string, ok func(told []string) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			told := slices.Clone(c.told)
			c.mu.Unlock()
			if ok(told) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: told %v", what, told)
			}
		}
	}
	until("the first flush", func(told []string) bool { return slices.Contains(told, "clear") })
	apply(t, r, stored(0, 1, 2))
	apply(t, r, stored(2, 3), removed(3)) // ends the hour's window
	// Told and answered: a cancel between the two would rightly tell all again.
	until("a removal", func(told []string) bool { return slices.Contains(told, "-3") && r.Status().Flushes >= 2 })
	apply(t, r, stored(2, 4)) // waits for company that does not come
	cancel()
	must.Do(t, <-done)
	if got := c.take(); !strings.HasSuffix(got, "stream +1@128,2@256,3@384 events -3 stream +4@384") {
		t.Errorf("told %q", got)
	}
}

// hanging is an index that takes every call and answers none.
type hanging struct {
	pb.UnimplementedCacheIndexServer
}

func (hanging) PublishEvent(ctx context.Context, _ *pb.PublishEventRequest) (*pb.PublishEventResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) StreamEvents(s grpc.ClientStreamingServer[pb.PublishEventRequest, pb.PublishEventResponse]) error {
	<-s.Context().Done()
	return s.Context().Err()
}

func (hanging) StreamCacheState(s grpc.ClientStreamingServer[pb.ReportCacheStateRequest, pb.ReportCacheStateResponse]) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// TestReporterIsBounded: an index that takes calls and never answers costs each
// kind of call the timeout, and the end of the reporter one more.
func TestReporterIsBounded(t *testing.T) {
	b := serve(t)
	stuck := pb.NewCacheIndexClient(rpc.Dial(t, func(ctx context.Context, l net.Listener) error {
		g := grpc.NewServer()
		pb.RegisterCacheIndexServer(g, hanging{})
		context.AfterFunc(ctx, g.Stop)
		return g.Serve(l)
	}))
	for what, change := range map[string]func(r *Reporter, c *tap){
		"a clear":  func(r *Reporter, c *tap) { r.Resync() },
		"a report": func(r *Reporter, c *tap) { apply(t, r, stored(2, 3)) },
		"removals": func(r *Reporter, c *tap) { apply(t, r, removed(2)) },
		"a ping":   func(r *Reporter, c *tap) {},
	} {
		t.Run(what, func(t *testing.T) {
			r, c := reporting(t, b, Options{})
			apply(t, r, stored(0, 1, 2))
			flush(t, r)
			patience := r.o.Timeout // of an index that answers, on a busy machine
			r.o.Timeout = 50 * time.Millisecond
			c.CacheIndexClient = stuck
			change(r, c)
			bounded(t, func() {
				if err := r.Flush(t.Context()); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("flush: %v, want the deadline exceeded", err)
				}
			})
			if s := r.Status(); s.Errors != 1 || !s.Behind {
				t.Errorf("%+v, want one error, and everything to be told again", s)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			bounded(t, func() {
				if err := r.Run(ctx); status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded {
					t.Errorf("the last report: %v, want the deadline exceeded", err)
				}
			})
			r.o.Timeout = patience
			c.CacheIndexClient = b.c
			flush(t, r)
		})
	}
}

// bounded fails when f hangs.
func bounded(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it hangs")
	}
}

// TestTwinsStay: a block that the engine has by two hashes is reported once, and is gone when
// both are, whichever changes one report has. What began anew is in no doubt.
func TestTwinsStay(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{})
	flush(t, r)
	c.take()
	twin := func(hash uint64) index.Event {
		e := tokened(0, 5)
		e.Hashes = []uint64{hash}
		return e
	}
	key := prefixhash.Link(prefixhash.TokenRoot("m", prefixhash.LoRA{}), 5)
	held := func(want int32) {
		t.Helper()
		flush(t, r)
		got := int32(0)
		for _, m := range b.x.Lookup(nil, engineScope, []prefixhash.Key{key}) {
			got = m.Blocks
		}
		if got != want {
			t.Errorf("%d blocks are held, want %d", got, want)
		}
	}
	apply(t, r, twin(1), twin(2))
	held(1)
	apply(t, r, removed(1))
	held(1)
	apply(t, r, removed(2), twin(3))
	held(1)
	if why := b.x.Doubt(index.Holder{Replica: "r"}); why != index.DoubtTwins {
		t.Errorf("the doubt is %q", why)
	}
	apply(t, r, removed(3))
	held(0)
	r.Begin(index.Holder{})
	apply(t, r, twin(4))
	held(1)
	if why := b.x.Doubt(index.Holder{Replica: "r"}); why != "" {
		t.Errorf("begun anew, and in doubt: %s", why)
	}
}

// TestReporterMessagesAreBounded: a message has so many runs, a run so many
// blocks, and a stream so many changes.
func TestReporterMessagesAreBounded(t *testing.T) {
	b := serve(t)
	r, _ := reporting(t, b, Options{})
	var changes []change
	r.mirror.store(stored(0, numbers(1, blocksPerPrefix+1)...), false, func(b *block) { changes = append(changes, change{b: *b}) })
	q, rest := r.message(changes)
	if len(rest) != 0 || len(q.GetPrefixes()) != 2 || len(q.GetPrefixes()[0].GetBlockHashes()) != blocksPerPrefix {
		t.Errorf("%d runs, the first of %d blocks, %d left", len(q.GetPrefixes()), len(q.GetPrefixes()[0].GetBlockHashes()), len(rest))
	}
	changes = nil
	for i := range uint64(prefixesPerMessage + 1) {
		r.mirror.store(stored(0, 10_000+i), false, func(b *block) { changes = append(changes, change{b: *b}) })
	}
	if q, rest = r.message(changes); len(q.GetPrefixes()) != prefixesPerMessage || len(rest) != 1 {
		t.Errorf("%d runs, %d left", len(q.GetPrefixes()), len(rest))
	}
}

func numbers(first uint64, n int) (out []uint64) {
	for i := range uint64(n) {
		out = append(out, first+i)
	}
	return out
}

// TestReporterCounts: a batch's blocks, the reported ones, and that a queue that grows
// too long is given up for a report of all blocks.
func TestReporterCounts(t *testing.T) {
	b := serve(t)
	r, c := reporting(t, b, Options{})
	flush(t, r)
	c.take()
	before := r.Status()
	res, err := r.Apply(&index.Batch{Incarnation: r.incarnation, Events: []index.Event{stored(0, 1, 2, 3), removed(3)}})
	if err != nil || res.Stored != 3 || res.Removed != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	flush(t, r)
	flush(t, r) // a sign of life is no flush
	if s := r.Status(); s.Flushes != before.Flushes+1 || s.Resyncs != before.Resyncs || s.Blocks != 2 || s.Behind {
		t.Errorf("%+v, before %+v", s, before)
	}
	if _, err := r.Apply(&index.Batch{Incarnation: r.incarnation - 1, Events: []index.Event{stored(0, 9)}}); !errors.Is(err, index.ErrIncarnation) || r.Status().Blocks != 2 {
		t.Errorf("a batch of another incarnation: %v, %+v", err, r.Status())
	}
	if again := r.Begin(index.Holder{}); again != r.incarnation || again < 2 {
		t.Errorf("incarnation %d", again)
	}
	flush(t, r)
	c.take()
	r.queue = make([]change, queueLimit-1)
	apply(t, r, stored(0, 1))
	if r.Status().Behind {
		t.Error("given up at the bound")
	}
	apply(t, r, stored(0, 1<<40))
	if !r.Status().Behind || r.queue != nil {
		t.Error("not given up beyond it")
	}
}

// TestReporterWakes: for the first change, and for a removal, not for every block.
func TestReporterWakes(t *testing.T) {
	b := serve(t)
	r, _ := reporting(t, b, Options{})
	flush(t, r)
	var woken []string
	for i, e := range []index.Event{stored(0, 1), stored(1, 2), stored(2, 3), removed(3)} {
		select {
		case <-r.wake:
		default:
		}
		apply(t, r, e)
		woken = append(woken, fmt.Sprint(i, ":", len(r.wake)))
	}
	if got := strings.Join(woken, " "); got != "0:1 1:0 2:0 3:1" {
		t.Errorf("woken: %s", got)
	}
}

// TestSkewedClocks: an idle reporter's ping says since when its own stream is known to be whole, so
// that one whose subscriber has fallen silent makes nothing fresher. A clock that is wrong makes its
// evidence neither older nor newer.
func TestSkewedClocks(t *testing.T) {
	for _, skew := range []time.Duration{-25 * time.Minute, -5 * time.Minute, -24 * 365 * time.Hour, 25 * time.Minute, 0} {
		t.Run(skew.String(), func(t *testing.T) {
			b := serve(t)
			r, _ := reporting(t, b, Options{Now: func() time.Time { return b.clock().Add(skew) }, Model: "m"})
			fresh := func(what string, want float64) {
				t.Helper()
				out, err := b.c.LookupRoute(b.ctx(), ask("engine", 1, 1))
				if err != nil || len(out.GetRoutes()) != 1 || out.GetRoutes()[0].GetFreshness() != want {
					t.Fatalf("%s: %v, %v; want freshness %v", what, out, err, want)
				}
			}
			flush(t, r)
			apply(t, r, stored(0, 1))
			flush(t, r)
			fresh("a report", 1)
			apply(t, r)
			b.advance(index.DefaultReplicaTTL / 2)
			flush(t, r)
			fresh("the events ceased half of the TTL ago", 0.5)
			apply(t, r) // the publisher is there and has nothing new
			flush(t, r)
			fresh("the events came back", 1)
		})
	}
}

// TestReportersOfOneRankAreNamed: two that report one rank by turns are; one that has taken over
// from another, and those of two ranks, are not.
func TestReportersOfOneRankAreNamed(t *testing.T) {
	b := serve(t)
	ranks := []index.Holder{{Replica: "r", Rank: 0}, {Replica: "r", Rank: 1}}
	of := func(rank int) *Reporter { return New(b.c, ranks[rank], Options{Now: b.clock}) }
	flush := func(all ...*Reporter) {
		t.Helper()
		for _, r := range all {
			_ = r.Flush(b.ctx()) // one that another has cleared reports again
		}
	}
	first, second, other := of(0), of(0), of(1)
	flush(first, other, first, other, second, second, second)
	if notes := b.s.Notes(); len(notes) > 0 {
		t.Errorf("after a restart: %q", notes)
	}
	flush(first, second)
	if notes := b.s.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "replica r, rank 0: several sidecars") {
		t.Errorf("%q", notes)
	}
	b.advance(2 * time.Minute)
	flush(second)
	if notes := b.s.Notes(); len(notes) > 0 {
		t.Errorf("after the end of one: %q", notes)
	}
}
