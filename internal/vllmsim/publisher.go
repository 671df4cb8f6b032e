package vllmsim

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// subscriberQueue is how many batches wait for one slow subscriber before
// further ones are dropped for it (vLLM's high-water mark is 100,000; a
// simulated one should show a lost batch sooner than that).
const subscriberQueue = 10_000

// publisher is one rank's ZmqEventPublisher (vllm/distributed/kv_events.py): a
// PUB socket, and a ROUTER socket that replays the last batches.
type publisher struct {
	topic     []byte
	withTopic bool // replay replies carry the topic, as in 0.32
	steps     int
	pub       net.Listener
	replay    net.Listener // nil: no replay
	faults    *atomic.Pointer[Faults]
	toSend    chan outgoing
	ended     chan struct{} // closed when run returns

	mu     sync.Mutex // guards what follows
	seq    uint64
	buffer []numbered // at most steps
	subs   map[*subscriber]bool
}

type outgoing struct {
	due     time.Time
	payload []byte
}

type numbered struct {
	seq     uint64
	payload []byte
}

type subscriber struct {
	queue chan numbered

	mu     sync.Mutex
	topics [][]byte
}

func (s *subscriber) wants(topic []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		if bytes.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

func newPublisher(o Options, pub, replay net.Listener, faults *atomic.Pointer[Faults]) *publisher {
	return &publisher{
		topic: []byte(o.Topic), withTopic: o.Version == V032, steps: o.BufferSteps,
		pub: pub, replay: replay, faults: faults,
		// vLLM's max_queue_size is 100,000 batches, after which its scheduler
		// waits; so does this one, earlier.
		toSend: make(chan outgoing, 1024),
		ended:  make(chan struct{}),
		subs:   map[*subscriber]bool{},
	}
}

// publish queues one encoded batch. It waits while the queue is full, as
// vLLM's scheduler does, but not after run has ended.
func (p *publisher) publish(payload []byte) {
	o := outgoing{payload: payload}
	if d := p.faults.Load().EventDelay; d > 0 {
		o.due = time.Now().Add(d)
	}
	select {
	case p.toSend <- o:
	case <-p.ended:
	}
}

// run serves until ctx ends and everything it started has.
func (p *publisher) run(ctx context.Context) {
	defer close(p.ended)
	var wg sync.WaitGroup
	wg.Go(func() { serveConns(ctx, p.pub, p.serveSubscriber) })
	if p.replay != nil {
		wg.Go(func() { serveConns(ctx, p.replay, p.serveReplay) })
	}
	for {
		select {
		case o := <-p.toSend:
			if !o.due.IsZero() && !sleep(ctx, time.Until(o.due)) {
				continue
			}
			p.number(o.payload)
		case <-ctx.Done():
			wg.Wait()
			return
		}
	}
}

// number gives a batch its sequence number, keeps it for replay and hands it to
// the subscribers.
func (p *publisher) number(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := numbered{p.seq, payload}
	p.seq++
	if len(p.buffer) == p.steps {
		copy(p.buffer, p.buffer[1:])
		p.buffer = p.buffer[:p.steps-1]
	}
	p.buffer = append(p.buffer, b)
	f := p.faults.Load()
	if f.DropAll || f.DropEvery > 0 && p.seq%uint64(f.DropEvery) == 0 {
		return
	}
	for s := range p.subs {
		if s.wants(p.topic) {
			select {
			case s.queue <- b:
			default: // a slow subscriber loses batches, as with ZeroMQ
			}
		}
	}
}

// serveConns accepts connections until ctx ends and waits for their handlers.
func serveConns(ctx context.Context, l net.Listener, serve func(context.Context, net.Conn)) {
	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			break // closed: nothing else ends a TCP listener of ours
		}
		wg.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			serve(ctx, c)
		})
	}
	wg.Wait()
}

// serveSubscriber sends batches to one SUB until it leaves.
func (p *publisher) serveSubscriber(ctx context.Context, c net.Conn) {
	z, err := acceptZMTP(c, "PUB")
	if err != nil {
		return
	}
	s := &subscriber{queue: make(chan numbered, subscriberQueue)}
	p.mu.Lock()
	p.subs[s] = true
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		s.send(ctx, z, p.topic)
		_ = c.Close() // ends the reading below
	})
	for {
		m, err := z.receive()
		if err != nil {
			break
		}
		s.subscribe(m)
	}
	p.mu.Lock()
	delete(p.subs, s)
	p.mu.Unlock()
}

// subscribe books a subscription (first byte 1) or its end (0).
func (s *subscriber) subscribe(m [][]byte) {
	if len(m) != 1 || len(m[0]) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	topic := m[0][1:]
	switch m[0][0] {
	case 1:
		s.topics = append(s.topics, topic)
	case 0:
		for i, t := range s.topics {
			if bytes.Equal(t, topic) {
				s.topics = append(s.topics[:i], s.topics[i+1:]...)
				return
			}
		}
	}
}

func (s *subscriber) send(ctx context.Context, z *zmtpConn, topic []byte) {
	for {
		select {
		case b := <-s.queue:
			if z.send(topic, binary.BigEndian.AppendUint64(nil, b.seq), b.payload) != nil {
				return
			}
			if len(s.queue) == 0 && z.flush() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// endOfReplay is the sequence number (-1) that ends a replay.
var endOfReplay = bytes.Repeat([]byte{0xff}, 8)

// serveReplay answers one DEALER's or REQ's requests: an empty frame, then the
// first sequence number wanted.
func (p *publisher) serveReplay(_ context.Context, c net.Conn) {
	z, err := acceptZMTP(c, "ROUTER")
	if err != nil {
		return
	}
	reply := func(topic, seq, payload []byte) error {
		if p.withTopic {
			return z.send(nil, topic, seq, payload)
		}
		return z.send(nil, seq, payload)
	}
	for {
		m, err := z.receive()
		if err != nil {
			return
		}
		if len(m) != 2 || len(m[1]) > 8 {
			continue // vLLM logs such a request and answers nothing
		}
		var start uint64
		for _, b := range m[1] {
			start = start<<8 | uint64(b)
		}
		for _, b := range p.from(start) {
			if reply(p.topic, binary.BigEndian.AppendUint64(nil, b.seq), b.payload) != nil {
				return
			}
		}
		if reply(nil, endOfReplay, nil) != nil || z.flush() != nil {
			return
		}
	}
}

// from copies the kept batches from seq start on.
func (p *publisher) from(start uint64) (out []numbered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.buffer {
		if b.seq >= start {
			out = append(out, b)
		}
	}
	return out
}
