package kvevents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"

	"warmroute/index"
)

// Subscriber follows one publisher. Create it with New, then call Run once.
type Subscriber struct {
	o  Options
	to Sink

	// Run owns the fields below.
	reader      *Reader
	paths       paths
	sequencer   *sequencer
	incarnation uint64
	repeats     uint64 // the Sink may have batches before this one already
	cancel      context.CancelFunc
	connection  atomic.Uint64 // number of the event socket's last connection
	troubles    troubles      // of the publisher

	// 1024 live messages: a second of a very busy replica. Beyond it TCP holds
	// the publisher back, which drops at its own high-water mark: a gap. They
	// wait as pointers: queues that are mostly empty take a tenth of the memory.
	live chan *listenerEvent

	shown
}

// shown is what other goroutines may ask for.
type shown struct {
	mu     sync.Mutex
	status Status
	cursor index.Cursor // Next 0: nothing to continue from
}

// New returns a subscriber. It reports every problem of the options at once.
func New(o Options, to Sink) (*Subscriber, error) {
	o.defaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{o: o, to: to, live: make(chan *listenerEvent, 1024)}
	s.reader = newReader(ReaderOptions{Tenant: o.Tenant, Model: o.Model, Adapter: o.Adapter, Hashes: o.Hashes, Unit: o.Unit, Presume: o.Presume}, o.Scheme)
	s.reader.decoder.SkipTokens = IsEngineScheme(o.Scheme) && o.Observe == nil
	s.paths.of = o.AdapterPath
	s.sequencer = newSequencer(s, o.ReplayEndpoint != "")
	return s, nil
}

func (o *Options) holder() index.Holder { return index.Holder{Replica: o.Replica, Rank: o.Rank} }

// Status returns the subscriber's state. Any goroutine may call it.
func (s *Subscriber) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// listenerEvent is a message of the listener to Run.
type listenerEvent struct {
	up    bool // conn is connected and subscribed
	bad   bool // a message without a sequence
	frame frame
}

// Run connects, follows and reconnects until ctx ends, then returns nil, after everything
// it started has ended. It waits for an absent publisher. It leaves a publisher that causes
// trouble again and again alone for growing pauses, in which the Sink holds nothing of it.
// At the end the Sink keeps its blocks.
func (s *Subscriber) Run(ctx context.Context) error {
	s.o.Following(false)
	doubt := s.start()
	for ctx.Err() == nil {
		if pause := s.session(ctx, doubt); pause > 0 {
			s.rest(ctx, pause)
		}
	}
	return nil
}

// rest waits for a pause without following the publisher.
func (s *Subscriber) rest(ctx context.Context, pause time.Duration) {
	s.sequencer.abandon()
	s.sequencer.count.Pauses++
	s.publish() // first: who sees the pause finds it counted
	s.set(func(st *Status) { st.Connected, st.Paused = false, pause })
	s.o.Log.Warn("KV events: the publisher's batches are refused or lost again and again; it is asked again after a pause",
		"replica", s.o.Replica, "rank", s.o.Rank, "pause", pause.String(), "refused", s.sequencer.count.Rejected)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	s.set(func(st *Status) { st.Paused = 0 })
}

// session follows the publisher until ctx ends or a pause is due, which it returns.
func (s *Subscriber) session(ctx context.Context, doubt <-chan time.Time) (pause time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	replies := make(chan *reply, 256)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		s.discard(replies)
	}()
	wg.Go(func() { s.listen(ctx) })

	// The probe timer: ProbeEvery after the last probe, sooner after an event.
	due := time.Now().Add(s.o.ProbeEvery)
	timer := time.NewTimer(s.o.ProbeEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.drain(replies)
			return 0
		case n := <-s.unread():
			s.receive(n)
			timer.Reset(min(s.o.ProbeQuiet, max(0, time.Until(due))))
		case r := <-replies:
			s.replied(r)
		case <-doubt:
			s.sequencer.giveUpTrial()
		case <-timer.C:
			next := s.o.ProbeEvery
			if !s.sequencer.probe() {
				next = min(next, s.o.ProbeQuiet)
			}
			s.touch(s.o.ReplayEndpoint == "" && s.Status().Connected)
			due = time.Now().Add(next)
			timer.Reset(next)
		}
		refused, lost := s.sequencer.troubles()
		if pause := s.troubles.judge(refused+s.sequencer.count.Malformed, lost, time.Now()); pause > 0 {
			return pause
		}
		if a := s.sequencer.wanted(); a != nil {
			s.launch(ctx, *a, replies, &wg)
		}
		s.publish()
	}
}

// discard gives back the room of the queued messages at a session's end.
func (s *Subscriber) discard(replies <-chan *reply) {
	for {
		select {
		case n := <-s.live:
			s.o.Room.live.give(n.frame.taken)
		case r := <-replies:
			s.o.Room.replayed.give(r.frame.taken)
		default:
			return
		}
	}
}

// drain applies the received batches for at most DrainWithin. If the end of the context
// broke a replay off, that says nothing of the publisher, so drain does not record it.
func (s *Subscriber) drain(replies <-chan *reply) {
	for end := time.Now().Add(s.o.DrainWithin); time.Now().Before(end); s.publish() {
		select {
		case n := <-s.unread():
			s.receive(n)
		case r := <-replies:
			if r.err == nil {
				s.replied(r)
			}
		default:
			return
		}
	}
}

// launch starts a replay and ends the one before it.
func (s *Subscriber) launch(ctx context.Context, a asked, replies chan<- *reply, wg *sync.WaitGroup) {
	if s.cancel != nil {
		s.cancel()
	}
	var rctx context.Context
	rctx, s.cancel = context.WithCancel(ctx)
	wg.Go(func() { replay(rctx, &s.o, a, replies) })
}

// unread is where the listener's messages are. While a replay has to come first they stay there,
// and TCP holds the publisher back.
func (s *Subscriber) unread() <-chan *listenerEvent {
	if s.sequencer.waits() {
		return nil
	}
	return s.live
}

func (s *Subscriber) receive(n *listenerEvent) {
	defer s.o.Room.live.give(n.frame.taken)
	switch {
	case n.up:
		s.sequencer.connected(n.frame.conn)
	case n.bad:
		s.sequencer.count.Malformed++
		s.noteError("events", errNoSequence)
	default:
		s.sequencer.live(n.frame)
	}
}

// replied takes a part of a replay.
func (s *Subscriber) replied(r *reply) {
	defer s.o.Room.replayed.give(r.frame.taken)
	s.sequencer.latest = s.connection.Load()
	if !r.end {
		s.sequencer.reply(r.id, r.frame)
		return
	}
	s.noteError("replay", r.err)
	before := s.sequencer.caughtUp()
	s.sequencer.replied(r.id, r.err)
	s.touch(r.err == nil)
	if s.o.Empty && !before && s.sequencer.caughtUp() {
		s.empty()
	}
}

// listen keeps one event socket connected and passes on its messages. A publisher that is not there
// yet is normal; one that never comes is a warning.
func (s *Subscriber) listen(ctx context.Context) {
	put := func(n listenerEvent) bool {
		select {
		case s.live <- &n:
			return true
		case <-ctx.Done():
			s.o.Room.live.give(n.frame.taken)
			return false
		}
	}
	came, warned := false, false
	for retry := time.Duration(0); ; {
		began := time.Now()
		err := s.follow(ctx, put)
		if ctx.Err() != nil {
			return
		}
		s.set(func(st *Status) { came, st.Connected = came || st.Connected, false })
		s.noteError("events", err)
		if retry = nextRetry(s.o.RetryAfter, retry, time.Since(began)); retry >= longestRetry && !came && !warned {
			warned = true
			s.o.Log.Warn("KV events cannot be reached", "replica", s.o.Replica, "rank", s.o.Rank, "trouble", err)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
	}
}

// follow makes one connection and reads it until it fails.
func (s *Subscriber) follow(ctx context.Context, put func(listenerEvent) bool) error {
	c, err := dial(ctx, s.o.Endpoint, zmq4.Sub, s.o.Room.live)
	if err != nil {
		return err
	}
	defer c.close()
	// 1 = subscribe, then the topic prefix (ZMTP 3.0).
	if err := c.send(append([]byte{1}, s.o.Topic...)); err != nil {
		return err
	}
	s.set(func(st *Status) { st.Connected = true })
	number := s.connection.Add(1)
	if !put(listenerEvent{up: true, frame: frame{conn: number}}) {
		return ctx.Err()
	}
	for {
		frames, taken, err := c.recv()
		if err != nil {
			return err
		}
		seq, payload, err := lastTwo(frames)
		n := listenerEvent{frame: frame{conn: number, seq: seq, payload: payload, taken: taken}, bad: err != nil}
		if !put(n) {
			return ctx.Err()
		}
	}
}

// start continues from Resume's position, or begins from nothing. doubt ends the wait
// for the publisher's confirmation.
func (s *Subscriber) start() (doubt <-chan time.Time) {
	c := s.o.Resume
	if c == nil || c.Next == 0 || s.o.ReplayEndpoint == "" {
		s.begin()
		return nil
	}
	s.incarnation, s.repeats = c.Incarnation, c.Begun
	s.sequencer.resume(c.Next, c.Digest, c.Complete)
	s.set(func(st *Status) { st.Incarnation, st.HasSeq, st.LastSeq = c.Incarnation, true, c.Next-1 })
	return time.After(s.o.ResumeWithin)
}

// begin starts a new incarnation in the Sink.
func (s *Subscriber) begin() {
	s.incarnation, s.repeats = s.to.Begin(s.o.holder()), 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Incarnation, s.status.HasSeq, s.status.LastSeq = s.incarnation, false, 0
	s.cursor = index.Cursor{}
}

// Cursor returns the place up to which the Sink holds the published batches, or false if
// another subscriber could not continue from it.
func (s *Subscriber) Cursor() (index.Cursor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor, s.cursor.Next > 0
}

// forget implements world.
func (s *Subscriber) forget(why index.Loss) {
	s.o.Log.Warn("KV events: the replica's blocks are dropped and read again",
		"replica", s.o.Replica, "rank", s.o.Rank, "lost", s.sequencer.count.Lost, "restarts", s.sequencer.count.Restarts)
	s.reader.converter.chains.forget()
	s.reader.converter.doubts, s.paths.loads = doubts{}, nil
	s.set(func(st *Status) { st.Doubt, st.Hashes = "", nil })
	s.begin()
	if s.o.Forgot != nil {
		s.o.Forgot(why)
	}
}

// apply implements world: it decodes the complete payload before it applies anything.
func (s *Subscriber) apply(f frame) error {
	if len(f.payload) > retainedPayload {
		defer s.reader.shrink()
	}
	b, err := s.reader.decoder.Decode(f.payload)
	if err != nil {
		err = fmt.Errorf("sequence %d: %w", f.seq, err)
		s.noteError("payload", err)
		s.set(func(st *Status) { st.Refused = err.Error() })
		return err
	}
	s.paths.resolve(b, s.o.Now(), !s.sequencer.first)
	if s.o.Observe != nil {
		s.o.Observe(f.seq, b)
	}
	batch, n := s.reader.converter.convert(b)
	batch.Holder, batch.Incarnation = s.o.holder(), s.incarnation
	batch.Full = s.o.Full || f.seq < s.repeats
	s.mu.Lock()
	s.cursor.Begun = max(s.cursor.Begun, f.seq+1)
	s.mu.Unlock()
	result, err := s.give(batch)
	if errors.Is(err, index.ErrIncarnation) {
		return errExpired
	}
	t := &s.sequencer.count
	t.Batches++
	t.Events += uint64(len(b.Events))
	t.Contents.add(n)
	t.OrphanBlocks += uint64(result.Orphaned)
	s.set(func(st *Status) {
		st.HasSeq, st.LastSeq, st.LastBatch, st.Doubt, st.Hashes = true, f.seq, s.o.Now(), batch.Doubt, batch.Keying.Hash
		st.Said = b.Rank
	})
	return nil
}

// touch reports to the Sink, by a batch without events, that an idle publisher is alive: an
// answered probe shows it, or, without replay, the open connection.
func (s *Subscriber) touch(yes bool) {
	if !yes {
		return
	}
	b := index.Batch{Holder: s.o.holder(), Incarnation: s.incarnation, Full: s.o.Full}
	if _, err := s.give(&b); errors.Is(err, index.ErrIncarnation) {
		s.sequencer.expired()
	}
}

// empty drops the blocks of the past, of a publisher that has discarded them.
func (s *Subscriber) empty() {
	b := index.Batch{Holder: s.o.holder(), Incarnation: s.incarnation,
		Events: []index.Event{{Kind: index.Cleared, Part: &index.Part{Tenant: s.o.Tenant}}}}
	_, _ = s.give(&b) // a Sink that let the holder go has no blocks
}

// give passes a batch to the Sink. It counts a refusal, but not that the Sink let the holder go.
func (s *Subscriber) give(b *index.Batch) (index.Result, error) {
	result, err := s.to.Apply(b)
	if err != nil && !errors.Is(err, index.ErrIncarnation) {
		s.sequencer.count.ApplyErrors++
		s.noteError("index", err)
	}
	return result, err
}

// noteError records an error for Status and, once per change, for the log.
func (s *Subscriber) noteError(what string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	text := what + ": " + err.Error()
	s.mu.Lock()
	changed := s.status.LastError != text
	s.status.LastError = text
	s.mu.Unlock()
	if changed {
		s.o.Log.Info("KV events", "replica", s.o.Replica, "rank", s.o.Rank, "trouble", text)
	}
}

func (s *Subscriber) set(change func(*Status)) {
	s.mu.Lock()
	before := s.status.Connected
	change(&s.status)
	now := s.status.Connected
	s.mu.Unlock()
	if now != before {
		s.o.Following(now)
	}
}

// publish updates Status after one turn of Run.
func (s *Subscriber) publish() {
	q := s.sequencer
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Synced, s.status.Complete, s.status.NoReplay, s.status.Counters = q.first, q.first && q.complete, q.unreplayed, q.count
	next, digest, ok := q.place()
	if !ok {
		s.cursor = index.Cursor{}
		return
	}
	s.cursor = index.Cursor{Holder: s.o.holder(), Next: next, Begun: max(next, s.cursor.Begun), Digest: digest, Complete: q.complete,
		Incarnation: s.incarnation, Tenant: s.o.Tenant, Model: s.o.Model, Scheme: s.o.Scheme, Full: s.o.Full}
}
