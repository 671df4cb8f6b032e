package kvevents

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a publisher, a subscriber that follows it, and the expected blocks of the sink.
type rig struct {
	t    *testing.T
	pub  *kvtest.Publisher
	sub  *Subscriber
	sink *mapSink
	ctx  context.Context
	want map[uint64]int
	next uint64 // hashes not used yet
}

func publisher(t *testing.T, o kvtest.Options) *kvtest.Publisher {
	t.Helper()
	p := must.Get(kvtest.Start(o))(t)
	t.Cleanup(p.Close)
	return p
}

// options are short-fused: tests wait for events, not for time.
func options(p *kvtest.Publisher) Options {
	return Options{Replica: "10.0.0.1:8000", Model: "m", Endpoint: p.Endpoint(), ReplayEndpoint: p.ReplayEndpoint(),
		ProbeEvery: time.Hour, ProbeQuiet: 10 * time.Millisecond, ReplayPatience: time.Second}
}

func newRig(t *testing.T, po kvtest.Options, change func(*Options)) *rig {
	t.Helper()
	p := publisher(t, po)
	o := options(p)
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return &rig{t: t, pub: p, sink: newMapSink(), ctx: ctx, want: map[uint64]int{}, next: 1, sub: subscriber(t, o)}
}

func subscriber(t *testing.T, o Options) *Subscriber {
	t.Helper()
	return must.Get(New(o, nil))(t)
}

// run follows the publisher until the test's end.
func (r *rig) run() {
	r.t.Helper()
	r.sub.to = r.sink
	testenv.Run(r.t, r.sub.Run)
}

// store publishes n new blocks as one chain from the root.
func (r *rig) store(n int) {
	e := kvtest.Event{Kind: kvtest.Stored, BlockSize: 2}
	for range n {
		e.Hashes = append(e.Hashes, r.next)
		e.Tokens = append(e.Tokens, uint32(r.next), 7)
		r.want[r.next] = 1
		r.next++
	}
	r.pub.Publish(e)
}

func (r *rig) remove(h uint64) {
	r.pub.Publish(kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{h}})
	delete(r.want, h)
}

// until waits for a condition over the sink and the status.
func (r *rig) until(what string, ok func(held map[uint64]int, s Status) bool) {
	r.t.Helper()
	stop := context.AfterFunc(r.ctx, func() { r.sink.changed.Broadcast() })
	defer stop()
	for r.ctx.Err() == nil {
		if ok(r.sink.held(), r.sub.Status()) {
			return
		}
		select {
		case <-time.After(time.Millisecond): // Status has no signal of its own
		case <-r.ctx.Done():
		}
	}
	r.t.Fatalf("%s: not reached; %d held, want %d; status %+v", what, len(r.sink.held()), len(r.want), r.sub.Status())
}

func (r *rig) exact(what string) {
	r.t.Helper()
	r.until(what, func(held map[uint64]int, s Status) bool { return s.Synced && maps.Equal(held, r.want) })
}

// subscribed waits until the publisher has a subscriber. A batch from between the end of the
// first replay and this time is found by the next probe only.
func (r *rig) subscribed() {
	r.t.Helper()
	must.Do(r.t, r.pub.WaitSubscribers(r.ctx, 1))
}

func TestSubscriberFollows(t *testing.T) {
	for name, enc := range generations() {
		for _, old := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, kvtest.Options{Encoding: enc, OldReplies: old, Topic: "kv@a@m"}, func(o *Options) { o.Topic = "kv@a@m" })
				r.store(3)
				r.remove(2)
				r.run()
				r.exact("history")
				r.subscribed()
				r.store(4)
				r.remove(1)
				r.pub.Publish(kvtest.Event{Kind: kvtest.Cleared},
					kvtest.Event{Kind: kvtest.Stored, BlockSize: 2, Hashes: []uint64{900}, Tokens: []uint32{1, 2}})
				r.want = map[uint64]int{900: 1}
				r.exact("a clear and a store in one batch")
				r.until("status", func(_ map[uint64]int, s Status) bool {
					return s.Connected && s.Complete && s.HasSeq && s.LastSeq == 4 && s.Clears == 1 && s.BlocksStored == 8 &&
						s.BlocksRemoved == 2 && s.Gaps == 0 && s.Lost == 0 && s.Restarts == 0 && !s.LastBatch.IsZero() && s.Incarnation == 1
				})
			})
		}
	}
}

func TestSubscriberTopicFilters(t *testing.T) {
	r := newRig(t, kvtest.Options{Topic: "kv@b"}, func(o *Options) { o.Topic, o.ReplayEndpoint = "kv@a", "" })
	r.run()
	r.subscribed()
	r.store(1)
	other := newRig(t, kvtest.Options{Topic: "kv@a@m"}, func(o *Options) { o.Topic, o.ReplayEndpoint = "kv@a", "" })
	other.run()
	other.subscribed()
	other.store(1)
	other.exact("a topic with the prefix")
	if len(r.sink.held()) != 0 {
		t.Error("another topic's events were taken")
	}
}

// TestSubscriberWaits: a publisher that is not there yet is normal.
func TestSubscriberWaits(t *testing.T) {
	local := testenv.Addresses(t, 2) // of this test alone, also while nothing listens there
	address, replay := local[0], local[1]
	r := newRig(t, kvtest.Options{}, func(o *Options) {
		o.Endpoint, o.ReplayEndpoint = "tcp://"+address, "tcp://"+replay
	})
	r.run()
	r.until("a first refusal", func(_ map[uint64]int, s Status) bool { return s.LastError != "" && !s.Connected && !s.Synced })
	r.pub = publisher(t, kvtest.Options{Address: address, ReplayAddr: replay})
	r.store(2)
	r.exact("the publisher came")
}

// TestSubscriberWarns of a publisher that never comes, and not of one that has gone.
func TestSubscriberWarns(t *testing.T) {
	for _, came := range []bool{false, true} {
		var log bytes.Buffer
		local := testenv.Addresses(t, 2)
		r := newRig(t, kvtest.Options{Address: local[0], ReplayAddr: local[1]}, func(o *Options) {
			o.RetryAfter, o.Log = longestRetry, slog.New(slog.NewTextHandler(&log, nil))
		})
		r.sub.to = r.sink
		if !came {
			r.pub.Close()
		}
		var ran sync.WaitGroup
		ctx, stop := context.WithCancel(r.ctx)
		ran.Go(func() { _ = r.sub.Run(ctx) })
		if came {
			r.subscribed()
			r.pub.Close()
		}
		r.until("a failure", func(_ map[uint64]int, s Status) bool { return s.LastError != "" && !s.Connected })
		stop()
		ran.Wait()
		if got := strings.Count(log.String(), "level=WARN"); got != map[bool]int{false: 1}[came] {
			t.Errorf("came: %v; %d warnings:\n%s", came, got, log.String())
		}
	}
}

// TestSubscriberRestart: a publisher's new life takes the place of the old one, whose blocks are dropped
// because of it.
func TestSubscriberRestart(t *testing.T) {
	var why atomic.Int32
	r := newRig(t, kvtest.Options{}, func(o *Options) { o.Forgot = func(l index.Loss) { why.Store(int32(l)) } })
	r.store(2)
	r.store(2)
	r.run()
	r.exact("first life")
	r.subscribed()
	r.pub.Restart()
	r.want = map[uint64]int{}
	r.store(1)
	r.exact("second life")
	r.until("status", func(_ map[uint64]int, s Status) bool { return s.Restarts == 1 && s.Incarnation == 2 && s.Complete })
	if got := index.Loss(why.Load()); got != index.LossRestarted {
		t.Errorf("the blocks were dropped because of %d, not of a restart", got)
	}
}

// TestSubscriberUnreadDuringAReplay: live batches that come while a replay is under way wait for it,
// more of them at the publisher than here, and none is lost.
func TestSubscriberUnreadDuringAReplay(t *testing.T) {
	var gate *testenv.Gate
	r := newRig(t, kvtest.Options{BufferSteps: 1}, func(o *Options) {
		gate = must.Get(testenv.NewGate(strings.TrimPrefix(o.ReplayEndpoint, "tcp://")))(t)
		o.ProbeQuiet, o.ReplayPatience, o.ReplayEndpoint = time.Hour, time.Hour, "tcp://"+gate.Addr
	})
	t.Cleanup(gate.Close)
	r.pub.Mute(true)
	r.run()
	r.subscribed()
	must.Do(t, r.pub.WaitRequests(r.ctx, 1))
	for range 5 * cap(r.sub.live) {
		r.store(1)
	}
	for r.ctx.Err() == nil && len(r.sub.live) < cap(r.sub.live) {
		time.Sleep(time.Millisecond) // a channel does not tell of its length
	}
	if n := len(r.sink.held()); n != 0 {
		t.Errorf("%d batches are applied before history", n)
	}
	gate.Close() // the replay fails, and so do further ones
	r.until("live batches without a hole", func(held map[uint64]int, s Status) bool { return maps.Equal(held, r.want) })
	if s := r.sub.Status(); s.Gaps != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSubscriberReplaysBesideAFullRoom: live batches that wait take no room from the replay for which
// they wait.
func TestSubscriberReplaysBesideAFullRoom(t *testing.T) {
	room := NewRoom()
	r := newRig(t, kvtest.Options{}, func(o *Options) { o.Room = room })
	if !room.live.TryAcquire(roomBytes) {
		t.Fatal("a new room is not empty")
	}
	r.store(3)
	r.run()
	r.exact("history")
	room.live.give(roomBytes)
	r.subscribed()
	r.store(1)
	r.exact("live batches")
}

// TestSubscriberEndDuringAReplay: that the publisher is gone is told of while a replay hangs.
func TestSubscriberEndDuringAReplay(t *testing.T) {
	following := make(chan bool, 8)
	r := newRig(t, kvtest.Options{}, func(o *Options) {
		o.ReplayPatience, o.Following = time.Minute, func(yes bool) { following <- yes }
	})
	r.pub.Mute(true)
	r.run()
	r.subscribed()
	must.Do(t, r.pub.WaitRequests(r.ctx, 1))
	r.store(1)
	go r.pub.Restart()
	for _, want := range []bool{false, true, false} {
		select {
		case got := <-following:
			if got != want {
				t.Errorf("it is followed: %v, want %v", got, want)
			}
		case <-r.ctx.Done():
			t.Fatal("not told of")
		}
	}
}

// TestSubscriberProbesAfterAReplay: a probe that is due while a replay is under way is made
// soon after it, and not ProbeEvery later.
func TestSubscriberProbesAfterAReplay(t *testing.T) {
	r := newRig(t, kvtest.Options{}, func(o *Options) { o.ReplayPatience = 30 * time.Millisecond })
	r.pub.Mute(true)
	r.store(1)
	r.run()
	must.Do(t, r.pub.WaitRequests(r.ctx, attemptLimit))
	r.pub.Mute(false)
	r.exact("history")
}

// TestSubscriberProbes requests the batches behind the last again and again.
func TestSubscriberProbes(t *testing.T) {
	r := newRig(t, kvtest.Options{}, func(o *Options) { o.ProbeEvery, o.ProbeQuiet = 20*time.Millisecond, time.Hour })
	r.store(1)
	r.run()
	r.exact("history")
	r.subscribed()
	must.Do(t, r.pub.WaitRequests(r.ctx, 3))
	if q := r.pub.Requests(); q[0] != 0 || q[1] != 0 || q[2] != 0 {
		t.Errorf("asked for %v, want 0, then from the last, 0, on", q)
	}
	r.pub.Fault(func(uint64) kvtest.Fate { return kvtest.Drop })
	r.store(2)
	r.exact("a lost tail")
	r.until("status", func(_ map[uint64]int, s Status) bool { return s.Gaps == 0 && s.Replayed == 2 })
}

// TestDialHostile: peers that are not publishers give errors, in bounded time
// and memory.
func TestDialHostile(t *testing.T) {
	greeting := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 48)...)
	ready := []byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB")
	cases := map[string][]byte{
		"an HTTP server":       []byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64)),
		"closes at once":       {},
		"broken metadata":      append(greeting[:64:64], "\x04\x0a\x05READY\x04Soc"...),
		"a frame of 2^60":      append(append(greeting[:64:64], ready...), 0x02, 0x10, 0, 0, 0, 0, 0, 0, 0),
		"endless empty frames": append(append(greeting[:64:64], ready...), []byte(strings.Repeat("\x01\x00", messageLimit/frameCost+1))...),
	}
	for name, sent := range cases {
		t.Run(name, func(t *testing.T) {
			l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if len(sent) > 0 {
					c.Write(sent)
					io.Copy(io.Discard, c)
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // far more than it takes: a hang ends here
			defer cancel()
			c, err := dial(ctx, "tcp://"+l.Addr().String(), "SUB", NewRoom().live)
			if err == nil {
				defer c.close()
				_, _, err = c.recv()
			}
			if err == nil || ctx.Err() != nil {
				t.Fatalf("error %v, context %v", err, ctx.Err())
			}
			if strings.Contains(name, "frame") && !strings.Contains(err.Error(), "MiB") {
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	good := Options{Replica: "r", Model: "m", Endpoint: "tcp://h:1"}
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"replica":  {func(o *Options) { o.Replica = "" }, "replica: must not be empty"},
		"rank":     {func(o *Options) { o.Rank = -1 }, "rank: -1 is negative"},
		"model":    {func(o *Options) { o.Model = "" }, "model: must not be empty"},
		"wildcard": {func(o *Options) { o.Endpoint = "tcp://*:5557" }, `endpoint "tcp://*:5557": a host and a port`},
		"no port":  {func(o *Options) { o.Endpoint = "tcp://h" }, `endpoint "tcp://h": `},
		"udp":      {func(o *Options) { o.Endpoint = "udp://h:1" }, `endpoint "udp://h:1": want tcp://`},
		"replay":   {func(o *Options) { o.ReplayEndpoint = "x" }, `replay endpoint "x": want tcp://`},
		"scheme":   {func(o *Options) { o.Scheme = "sha256" }, `scheme: "sha256" is none of tokens, engine and engine:NAME`},
	}
	for name, c := range cases {
		o := good
		c.change(&o)
		if _, err := New(o, nullSink{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	s, err := New(good, nullSink{})
	if err != nil || s.o.ProbeEvery != 30*time.Second || s.o.Scheme != index.SchemeTokens {
		t.Errorf("defaults %+v, %v", s.o, err)
	}
}
