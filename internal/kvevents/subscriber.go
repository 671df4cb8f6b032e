package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"warmroute/index"
	"warmroute/prefixhash"
)

// Sink is where decoded events go. *index.Index is one. Apply must not keep the
// batch or anything in it. Apply's index.ErrIncarnation means that the Sink let
// the holder go (it was silent for too long): it is begun again, so a replica
// that is to stay removed needs its Subscriber stopped first.
type Sink interface {
	// Begin removes what h held and starts a new incarnation.
	Begin(h index.Holder) (incarnation uint64)
	// Apply applies one batch.
	Apply(b *index.Batch) (index.Result, error)
}

// Options configure a Subscriber.
type Options struct {
	Replica string // "ip:port", the holder's name
	Rank    int    // data-parallel rank behind Endpoint

	Endpoint       string // the publisher's PUB socket, tcp://host:port or ipc://path
	ReplayEndpoint string // its ROUTER socket; "" = none: holes then cost what was known
	Topic          string // subscription prefix; "" = all

	Tenant string // "" is the shared tenant
	Model  string // the base model's canonical name
	Scheme string // index.SchemeTokens (the default), or an engine's own: see IsEngineScheme
	// Full means that the replica announces blocks again that it already holds (vLLM's
	// kv_cache_report_mode full): they are not counted as second copies.
	Full bool

	// Hashes are what the publisher may hash its blocks with, the likeliest first;
	// which it is shows from its events. Unit is its prefix_match_unit, 0 when not
	// given; with Presume, the first of Hashes is assumed until disproved.
	Hashes  []*prefixhash.VLLM
	Unit    int
	Presume bool

	// ProbeEvery is how often a replay of last+1 is requested, because a lost
	// last batch leaves no gap. Default 30 s.
	ProbeEvery time.Duration
	// ProbeQuiet is how soon after the last event one more such probe is made:
	// the end of a burst is where a lost batch would stay unseen. Default 1 s.
	ProbeQuiet time.Duration
	// ReplayPatience is how long a replay may be silent before it counts as
	// failed; live events are held that long. Default 3 s: the publisher serves
	// replays between two batches.
	ReplayPatience time.Duration
	// ReplayWithin is how long a replay may take. One that takes longer, or brings more
	// than 262,144 batches, counts as one without an end: what is known is dropped, and
	// the live events go on. Default 2 min.
	ReplayWithin time.Duration
	// RetryAfter is the wait before a failed connection or replay is tried again. It
	// doubles up to 5 s while no connection lasts. Default 200 ms: long enough for a busy publisher (vLLM's
	// looks for replays every 0.1 s), short enough that a restarted one is found
	// within a fraction of a second.
	RetryAfter time.Duration
	// DrainWithin bounds how long Run, when its context ends, still applies batches
	// that have been received. 0 = they are dropped, for a Sink that ends too.
	DrainWithin time.Duration

	// Resume, when set, is the place up to which the Sink holds this publisher's
	// batches already, under Resume.Incarnation. The publisher must confirm within
	// ResumeWithin (default 10 s) that it is still the one that published the
	// batch before, and give what has come since; else the Sink is made to forget
	// and history comes again. Ignored without a replay endpoint.
	Resume       *index.Cursor
	ResumeWithin time.Duration

	// Room bounds the bytes of events in memory, with others that share it. Default:
	// one of its own.
	Room *Room

	Now func() time.Time // default index.Now
	Log *slog.Logger     // default: none. Never given token ids, salts or payloads.
	// Observe, when set, is called with every batch about to be applied, in
	// order. The batch is valid during the call only and holds token ids.
	Observe func(seq uint64, b *Batch)
}

func (o *Options) validate() error {
	var problems []error
	if o.Replica == "" {
		problems = append(problems, errors.New("replica: must not be empty"))
	}
	if o.Rank < 0 {
		problems = append(problems, fmt.Errorf("rank %d: must not be negative", o.Rank))
	}
	if o.Model == "" {
		problems = append(problems, errors.New("model: must not be empty"))
	}
	if _, _, err := splitEndpoint(o.Endpoint); err != nil {
		problems = append(problems, err)
	}
	if o.ReplayEndpoint != "" {
		if _, _, err := splitEndpoint(o.ReplayEndpoint); err != nil {
			problems = append(problems, fmt.Errorf("replay %w", err))
		}
	}
	if o.Scheme != index.SchemeTokens && !IsEngineScheme(o.Scheme) {
		problems = append(problems, fmt.Errorf("scheme %q: want %s, %s or %s:NAME", o.Scheme, index.SchemeTokens, SchemeEngine, SchemeEngine))
	}
	return errors.Join(problems...)
}

func (o *Options) defaults() {
	positive := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	positive(&o.ProbeEvery, 30*time.Second)
	positive(&o.ProbeQuiet, time.Second)
	positive(&o.ReplayPatience, 3*time.Second)
	positive(&o.ReplayWithin, 2*time.Minute)
	positive(&o.RetryAfter, 200*time.Millisecond)
	positive(&o.ResumeWithin, 10*time.Second)
	if o.Scheme == "" {
		o.Scheme = index.SchemeTokens
	}
	if o.Room == nil {
		o.Room = NewRoom()
	}
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
}

// Subscriber follows one publisher. Create it with New, then call Run once.
type Subscriber struct {
	o      Options
	to     Sink
	holder index.Holder

	// Owned by Run.
	decoder     Decoder
	converter   converter
	sequencer   *sequencer
	incarnation uint64
	repeats     uint64   // batches before this may be in the Sink already
	totals      Counters // what apply counts
	cancel      context.CancelFunc
	connection  uint64   // number of the event socket's last connection; the listener's while a session runs
	troubles    troubles // that the publisher gave

	// 1024 live messages: a second of a very busy replica. Beyond it TCP holds
	// the publisher back, which drops at its own high-water mark: a gap. They
	// wait as pointers: queues that are mostly empty take a tenth of the memory.
	live chan *listenerEvent

	mu     sync.Mutex
	status Status
	cursor index.Cursor // Next 0: nothing to continue from
}

// New checks the options, every problem at once.
func New(o Options, to Sink) (*Subscriber, error) {
	o.defaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{o: o, to: to, holder: index.Holder{Replica: o.Replica, Rank: o.Rank}, live: make(chan *listenerEvent, 1024)}
	s.decoder.SkipTokens = IsEngineScheme(o.Scheme) && o.Observe == nil
	s.converter = converter{tenant: o.Tenant, model: o.Model, scheme: o.Scheme,
		chains: chainFinder{candidates: o.Hashes, unit: o.Unit, presume: o.Presume}}
	s.converter.batch.Holder, s.converter.batch.Full = s.holder, o.Full
	s.sequencer = newSequencer(s, o.ReplayEndpoint != "")
	s.sequencer.room = o.Room
	return s, nil
}

// Status returns the subscriber's state; safe to call from anywhere.
func (s *Subscriber) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// listenerEvent is what the listener passes to Run, in order.
type listenerEvent struct {
	up    bool  // conn is connected and subscribed
	down  error // it no longer is, or could not be
	bad   bool  // a message without a sequence
	frame frame
}

// Run connects, follows and reconnects until ctx ends, then returns nil, having
// waited for all it started. A publisher that is not there is waited for; one that
// gives trouble again and again is left alone for growing pauses, and the Sink then
// holds nothing of it. At the end the Sink keeps what it holds.
func (s *Subscriber) Run(ctx context.Context) error {
	doubt := s.start()
	defer doubt.Stop()
	defer s.sequencer.release()
	for ctx.Err() == nil {
		if pause := s.session(ctx, doubt); pause > 0 {
			s.rest(ctx, pause)
		}
	}
	return nil
}

// rest leaves the publisher alone for the pause.
func (s *Subscriber) rest(ctx context.Context, pause time.Duration) {
	s.sequencer.abandon()
	s.totals.Pauses++
	s.set(func(st *Status) { st.Connected, st.Paused = false, pause })
	s.publish()
	s.o.Log.Warn("KV events: the publisher's batches are refused or lost again and again; it is asked again after a pause",
		"replica", s.o.Replica, "rank", s.o.Rank, "pause", pause.String(), "refused", s.sequencer.count.Rejected)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	s.set(func(st *Status) { st.Paused = 0 })
}

// session follows the publisher until ctx ends, or until it has to be left alone
// for the pause returned.
func (s *Subscriber) session(ctx context.Context, doubt *time.Timer) (pause time.Duration) {
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
		case n := <-s.live:
			s.receive(n)
			s.o.Room.give(n.frame.taken)
			if n.down == nil {
				timer.Reset(min(s.o.ProbeQuiet, max(0, time.Until(due))))
			}
		case r := <-replies:
			if r.end {
				s.noteError("replay", r.err)
				s.sequencer.replied(r.id, r.err)
				s.touch(r.err == nil)
			} else {
				s.sequencer.reply(r.id, r.frame)
			}
			s.o.Room.give(r.frame.taken)
		case <-doubt.C:
			s.sequencer.giveUpTrial()
		case <-timer.C:
			s.sequencer.probe()
			s.touch(s.o.ReplayEndpoint == "" && s.Status().Connected)
			due = time.Now().Add(s.o.ProbeEvery)
			timer.Reset(s.o.ProbeEvery)
		}
		refused, lost := s.sequencer.troubles()
		if pause := s.troubles.judge(refused+s.totals.Malformed, lost, time.Now()); pause > 0 {
			return pause
		}
		if a := s.sequencer.wanted(); a != nil {
			s.launch(ctx, *a, replies, &wg)
		}
		s.publish()
	}
}

// discard gives back the room of what a session leaves in its queues.
func (s *Subscriber) discard(replies <-chan *reply) {
	for {
		select {
		case n := <-s.live:
			s.o.Room.give(n.frame.taken)
		case r := <-replies:
			s.o.Room.give(r.frame.taken)
		default:
			return
		}
	}
}

// drain applies the received batches for at most DrainWithin. A replay that the end
// of the context broke off says nothing of the publisher, so its end is not noted.
func (s *Subscriber) drain(replies <-chan *reply) {
	for end := time.Now().Add(s.o.DrainWithin); time.Now().Before(end); s.publish() {
		select {
		case n := <-s.live:
			s.receive(n)
			s.o.Room.give(n.frame.taken)
		case r := <-replies:
			if r.end && r.err == nil {
				s.sequencer.replied(r.id, nil)
			} else if !r.end {
				s.sequencer.reply(r.id, r.frame)
			}
			s.o.Room.give(r.frame.taken)
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

func (s *Subscriber) receive(n *listenerEvent) {
	switch {
	case n.up:
		s.set(func(st *Status) { st.Connected = true })
		s.sequencer.connected(n.frame.conn)
	case n.down != nil:
		s.set(func(st *Status) { st.Connected = false })
		s.noteError("events", n.down)
	case n.bad:
		s.totals.Malformed++
		s.noteError("events", errNoSequence)
	default:
		s.sequencer.live(n.frame)
	}
}

// listen keeps one event socket connected and passes on what it brings.
func (s *Subscriber) listen(ctx context.Context) {
	put := func(n listenerEvent) bool {
		select {
		case s.live <- &n:
			return true
		case <-ctx.Done():
			s.o.Room.give(n.frame.taken)
			return false
		}
	}
	wait := time.NewTimer(0)
	defer wait.Stop()
	for retry := time.Duration(0); ; {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := s.follow(ctx, put)
		if ctx.Err() != nil || !put(listenerEvent{down: err}) {
			return
		}
		retry = nextRetry(s.o.RetryAfter, retry, time.Since(began))
		wait.Reset(retry)
	}
}

// follow makes one connection and reads it until it fails.
func (s *Subscriber) follow(ctx context.Context, put func(listenerEvent) bool) error {
	c, err := dial(ctx, s.o.Endpoint, zmq4.Sub, s.o.Room)
	if err != nil {
		return err
	}
	defer c.close()
	// 1 = subscribe, then the topic prefix (ZMTP 3.0).
	if err := c.send(append([]byte{1}, s.o.Topic...)); err != nil {
		return err
	}
	s.connection++
	number := s.connection
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

// start continues from Resume's position, or begins from nothing. The timer ends the wait
// for the publisher's word that it is still the same.
func (s *Subscriber) start() (doubt *time.Timer) {
	doubt = time.NewTimer(s.o.ResumeWithin)
	c := s.o.Resume
	if c == nil || c.Next == 0 || s.o.ReplayEndpoint == "" {
		doubt.Stop()
		s.begin()
		return doubt
	}
	s.incarnation, s.repeats = c.Incarnation, c.Begun
	s.sequencer.resume(c.Next, c.Digest, c.Whole)
	s.set(func(st *Status) { st.Incarnation, st.HasSeq, st.LastSeq = c.Incarnation, true, c.Next-1 })
	return doubt
}

// begin starts a new incarnation in the Sink.
func (s *Subscriber) begin() {
	s.incarnation, s.repeats = s.to.Begin(s.holder), 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Incarnation, s.status.HasSeq, s.status.LastSeq = s.incarnation, false, 0
	s.cursor = index.Cursor{}
}

// Cursor returns the place up to which the Sink holds what was published; false
// when there is none that another subscriber could continue from.
func (s *Subscriber) Cursor() (index.Cursor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor, s.cursor.Next > 0
}

// forget implements world.
func (s *Subscriber) forget() {
	s.o.Log.Warn("KV events: the replica's blocks are dropped and read again",
		"replica", s.o.Replica, "rank", s.o.Rank, "lost", s.sequencer.count.Lost, "restarts", s.sequencer.count.Restarts)
	s.converter.chains.forget()
	s.begin()
}

// apply implements world: it decodes the whole payload before anything is applied.
func (s *Subscriber) apply(f frame) error {
	if len(f.payload) > retainedPayload {
		defer s.shrink()
	}
	b, err := s.decoder.Decode(f.payload)
	if err != nil {
		err = fmt.Errorf("sequence %d: %w", f.seq, err)
		s.noteError("payload", err)
		return err
	}
	if s.o.Observe != nil {
		s.o.Observe(f.seq, b)
	}
	batch, n := s.converter.convert(b)
	batch.Incarnation = s.incarnation
	batch.At = s.o.Now() // ours: lifetimes must not depend on the publisher's clock
	batch.Full = s.o.Full || f.seq < s.repeats
	s.mu.Lock()
	s.cursor.Begun = max(s.cursor.Begun, f.seq+1)
	s.mu.Unlock()
	result, err := s.to.Apply(batch)
	if errors.Is(err, index.ErrIncarnation) {
		return errExpired
	}
	if err != nil {
		s.totals.ApplyErrors++
		s.noteError("index", err)
	}
	t := &s.totals
	t.Batches++
	t.Events += n.events
	t.BlocksStored += n.stored
	t.BlocksRemoved += n.removed
	t.Clears += n.clears
	t.Unkeyed += n.unkeyed
	t.Placeholders += n.placeholders
	t.UnknownEvents += uint64(b.Unknown)
	t.OrphanBlocks += uint64(result.Orphaned)
	s.set(func(st *Status) { st.HasSeq, st.LastSeq, st.LastBatch = true, f.seq, batch.At })
	return nil
}

// shrink drops the buffers that a large batch has grown.
func (s *Subscriber) shrink() {
	s.decoder = Decoder{SkipTokens: s.decoder.SkipTokens}
	c := &s.converter
	s.converter = converter{tenant: c.tenant, model: c.model, scheme: c.scheme, chains: c.chains}
	s.converter.batch.Holder, s.converter.batch.Full = s.holder, s.o.Full
}

// touch reports to the Sink, by a batch without events, that an idle publisher is
// there: an answered probe shows it, or, without replay, the open connection.
func (s *Subscriber) touch(yes bool) {
	if !yes {
		return
	}
	b := index.Batch{Holder: s.holder, Incarnation: s.incarnation, At: s.o.Now(), Full: s.o.Full}
	switch _, err := s.to.Apply(&b); {
	case errors.Is(err, index.ErrIncarnation):
		s.sequencer.expired()
	case err != nil:
		s.totals.ApplyErrors++
		s.noteError("index", err)
	}
}

// noteError notes an error for Status and, once per change, for the log.
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
	change(&s.status)
	s.mu.Unlock()
}

// publish brings Status up to date after one turn of Run.
func (s *Subscriber) publish() {
	q := s.sequencer
	c := s.totals
	c.Connects, c.Gaps, c.Lost, c.Restarts, c.Duplicates = q.count.Connects, q.count.Gaps, q.count.Lost, q.count.Restarts, q.count.Duplicates
	c.Replays, c.ReplayFails, c.Replayed = q.count.Replays, q.count.ReplayFails, q.count.Replayed
	c.Rejected, c.Overflow = q.count.Rejected, q.count.Overflow
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Synced, s.status.Complete, s.status.Counters = q.first, q.first && q.whole, c
	next, digest, ok := q.place()
	if !ok {
		s.cursor = index.Cursor{}
		return
	}
	s.cursor = index.Cursor{Holder: s.holder, Next: next, Begun: max(next, s.cursor.Begun), Digest: digest, Whole: q.whole,
		Incarnation: s.incarnation, Tenant: s.o.Tenant, Model: s.o.Model, Scheme: s.o.Scheme, Full: s.o.Full}
}
