package kvevents

import (
	"context"
	"maps"
	"net"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// gatedSink is a mapSink whose first batch with events waits for the gate.
type gatedSink struct {
	*mapSink
	reached, gate chan struct{}
	passed        bool
}

func (s *gatedSink) Apply(b *index.Batch) (index.Result, error) {
	if len(b.Events) > 0 && !s.passed {
		s.passed = true
		close(s.reached)
		<-s.gate
	}
	return s.mapSink.Apply(b)
}

// TestReceivedBatchesAreAppliedAtTheEnd within a deadline, and without one not.
func TestReceivedBatchesAreAppliedAtTheEnd(t *testing.T) {
	const batches = 100
	for name, within := range map[string]time.Duration{"a minute": time.Minute, "a nanosecond": 1, "no time": 0} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, kvtest.Options{}, func(o *Options) { o.ReplayEndpoint, o.DrainWithin = "", within })
			sink := &gatedSink{mapSink: r.sink, reached: make(chan struct{}), gate: make(chan struct{})}
			r.sub.to = sink
			ctx, cancel := context.WithCancel(r.ctx)
			ended := make(chan error, 1)
			go func() { ended <- r.sub.Run(ctx) }()
			r.subscribed()
			for range batches {
				r.store(1)
			}
			<-sink.reached
			for len(r.sub.live) < batches-1 && r.ctx.Err() == nil {
				time.Sleep(time.Millisecond) // a channel does not tell of its length
			}
			cancel()
			close(sink.gate)
			must.Do(t, <-ended)
			// Run may choose the next batch a few times before it sees the end.
			all := len(sink.held()) == batches
			if all != (within == time.Minute) {
				t.Errorf("%d of %d batches were applied, with %v for them", len(sink.held()), batches, within)
			}
			if s := r.sub.Status(); all && (!maps.Equal(sink.held(), r.want) || s.Batches != batches || s.LastSeq != batches-1) {
				t.Errorf("the status says %+v", s)
			}
		})
	}
}

// TestPauseBetweenConnections: a publisher that closes every connection is tried
// again after RetryAfter, not at once.
func TestPauseBetweenConnections(t *testing.T) {
	const pause, tries = 30 * time.Millisecond, 5
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	s := subscriber(t, Options{Replica: "r", Model: "m", Endpoint: "tcp://" + l.Addr().String(), RetryAfter: pause})
	s.to = newMapSink()
	begun := time.Now()
	testenv.Run(t, s.Run)
	for range tries {
		c := must.Get(l.Accept())(t)
		c.Close()
	}
	if took := time.Since(begun); took < (tries-1)*pause {
		t.Errorf("%d connections within %v, with a pause of %v between them", tries, took, pause)
	}
	o := Options{RetryAfter: -1}
	if o.defaults(); o.RetryAfter != 200*time.Millisecond {
		t.Errorf("the default pause is %v", o.RetryAfter)
	}
}

// TestEngineSchemeReadsNoTokens: under the engine's own hashes, token ids and extra keys are neither
// kept nor checked, and blocks are keyed without them; under the scheme tokens a batch with impossible
// ids is refused.
func TestEngineSchemeReadsNoTokens(t *testing.T) {
	payload := kvtest.Pack([]any{1.5, []any{kvtest.Fields{
		{Name: "type", Value: "BlockStored"}, {Name: "block_hashes", Value: []any{uint64(7)}}, {Name: "parent_block_hash", Value: nil},
		{Name: "token_ids", Value: []any{"not", "ids"}}, {Name: "block_size", Value: 2}, {Name: "medium", Value: "GPU"},
		{Name: "extra_keys", Value: "not keys"},
	}}, 0})
	for scheme, want := range map[string]uint64{SchemeEngine: 0, SchemeEngine + ":a": 0, index.SchemeTokens: 1} {
		r := newRig(t, kvtest.Options{}, func(o *Options) { o.Scheme = scheme })
		r.pub.PublishRaw(payload)
		if want == 0 {
			r.want[7] = 1
		}
		r.run()
		r.exact(scheme)
		r.until(scheme, func(_ map[uint64]int, s Status) bool { return s.Rejected == want && s.Unkeyed == 0 })
	}
}
