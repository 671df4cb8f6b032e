package publisher

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
)

// Options configure a Publisher.
type Options struct {
	Topic       string
	BufferSteps int  // payloads kept for replay
	Queue       int  // payloads that wait for one slow subscriber before further ones are dropped for it
	OldReplies  bool // replies without the topic frame, as vLLM 0.21
}

// Fate decides about the live copy of one payload.
type Fate int

// The fates there are.
const (
	Deliver Fate = iota
	Drop         // never sent live; in the replay buffer
	Hold         // sent live after the next one that is delivered
	Lose         // neither sent nor buffered: gone
)

// Publisher publishes payloads. Make it with New.
type Publisher struct {
	o      Options
	topic  []byte
	pub    net.Listener
	replay net.Listener // nil: no replay

	mu       sync.Mutex // guards the fields below
	changed  sync.Cond  // conns, subs, requests or ended have changed
	fault    func(seq uint64) Fate
	seq      uint64
	buffer   []numbered // at most BufferSteps
	late     []numbered
	conns    map[net.Conn]*subscriber // nil: connections of the replay socket
	requests []uint64
	mute     bool
	endless  []byte // payload of endless replays; nil: replays end
	ended    bool
}

type numbered struct {
	seq     uint64
	payload []byte
}

// New returns a publisher on two listeners, which Run serves and closes; replay may
// be nil.
func New(o Options, pub, replay net.Listener) *Publisher {
	p := &Publisher{o: o, topic: []byte(o.Topic), pub: pub, replay: replay, conns: map[net.Conn]*subscriber{}}
	p.changed.L = &p.mu
	return p
}

// Run serves until ctx ends, and waits for everything it started.
func (p *Publisher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { p.accept(ctx, p.pub, p.serveSubscriber) })
	if p.replay != nil {
		wg.Go(func() { p.accept(ctx, p.replay, p.serveReplay) })
	}
	wg.Wait()
	p.update(func() { p.ended = true })
}

// Close frees the addresses of a publisher that is not run.
func (p *Publisher) Close() {
	p.pub.Close()
	if p.replay != nil {
		p.replay.Close()
	}
}

// Endpoint returns the PUB socket's "tcp://ip:port", ReplayEndpoint the ROUTER
// socket's; "" without one.
func (p *Publisher) Endpoint() string { return "tcp://" + p.pub.Addr().String() }

// ReplayEndpoint returns the ROUTER socket's; see Endpoint.
func (p *Publisher) ReplayEndpoint() string {
	if p.replay == nil {
		return ""
	}
	return "tcp://" + p.replay.Addr().String()
}

// Publish gives a payload its sequence number, keeps it for replay and passes it to the
// subscribers.
func (p *Publisher) Publish(payload []byte) (seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := numbered{p.seq, payload}
	p.seq++
	fate := Deliver
	if p.fault != nil {
		fate = p.fault(n.seq)
	}
	if fate != Lose {
		if len(p.buffer) >= p.o.BufferSteps {
			p.buffer = slices.Delete(p.buffer, 0, 1)
		}
		p.buffer = append(p.buffer, n)
	}
	switch fate {
	case Deliver:
		p.send(n)
		for _, late := range p.late {
			p.send(late)
		}
		p.late = nil
	case Hold:
		p.late = append(p.late, n)
	}
	return n.seq
}

func (p *Publisher) send(n numbered) {
	for _, s := range p.conns {
		if s.wants(p.topic) {
			select {
			case s.queue <- n:
			default: // a slow subscriber loses payloads, as with ZeroMQ
			}
		}
	}
}

// Seq returns the number of published payloads: the next one's sequence number.
func (p *Publisher) Seq() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// Fault decides every later payload's fate; nil delivers all.
func (p *Publisher) Fault(f func(seq uint64) Fate) { p.update(func() { p.fault = f }) }

// Mute makes the replay socket take requests and never answer, or ends that.
func (p *Publisher) Mute(on bool) { p.update(func() { p.mute = on }) }

// Endless makes every replay repeat this payload under growing sequences until the
// other side closes the connection; nil ends that.
func (p *Publisher) Endless(payload []byte) { p.update(func() { p.endless = payload }) }

// withoutEnd sends a replay that does not end. It reports whether the connection lasts.
func (p *Publisher) withoutEnd(z *zmtpConn, seq uint64) (lasts bool) {
	for ; ; seq++ {
		p.mu.Lock()
		payload := p.endless
		p.mu.Unlock()
		if payload == nil {
			return true
		}
		if p.reply(z, p.topic, numbered{seq, payload}) != nil {
			return false
		}
	}
}

// Disconnect closes every connection; subscribers may come back at once.
func (p *Publisher) Disconnect() { p.update(p.disconnect) }

// Restart stands for a kill and a new process on the same ports: connections break, the
// buffer is empty, sequences begin at 0.
func (p *Publisher) Restart() {
	p.update(func() {
		p.disconnect()
		p.seq, p.buffer, p.late = 0, nil, nil
	})
}

func (p *Publisher) disconnect() {
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// update changes the publisher, and wakes the goroutines that wait for that.
func (p *Publisher) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

// Requests returns the start sequences of the replays requested so far.
func (p *Publisher) Requests() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// accept serves each connection to l until ctx ends, and waits for them.
func (p *Publisher) accept(ctx context.Context, l net.Listener, serve func(context.Context, net.Conn)) {
	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			break // closed: nothing else ends a TCP listener of ours
		}
		p.update(func() { p.conns[c] = nil })
		wg.Go(func() {
			defer p.update(func() { delete(p.conns, c) })
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			serve(ctx, c)
		})
	}
	wg.Wait()
}

// serveReplay answers one DEALER's or REQ's requests: an empty frame, then the
// first sequence number wanted.
func (p *Publisher) serveReplay(_ context.Context, c net.Conn) {
	z, err := acceptZMTP(c, "ROUTER")
	if err != nil {
		return
	}
	for {
		m, err := z.receive()
		if err != nil {
			return
		}
		// The identity frame is the ROUTER's own; the wire carries two.
		if len(m) != 2 || len(m[0]) != 0 || len(m[1]) > 8 {
			continue // vLLM logs such a request and answers nothing
		}
		var start uint64
		for _, b := range m[1] {
			start = start<<8 | uint64(b)
		}
		all := p.from(start)
		if !p.withoutEnd(z, start) {
			return
		}
		for _, n := range all {
			if p.reply(z, p.topic, n) != nil {
				return
			}
		}
		if z.flush() != nil {
			return
		}
	}
}

// endOfReplay is the sequence number (-1) that ends a replay.
const endOfReplay = ^uint64(0)

// from records a request, and returns its answer: the kept payloads from seq start on
// and the end, or nothing.
func (p *Publisher) from(start uint64) (out []numbered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, start)
	p.changed.Broadcast()
	if p.mute {
		return nil
	}
	for _, n := range p.buffer {
		if n.seq >= start {
			out = append(out, n)
		}
	}
	return append(out, numbered{seq: endOfReplay})
}

func (p *Publisher) reply(z *zmtpConn, topic []byte, n numbered) error {
	number := binary.BigEndian.AppendUint64(nil, n.seq)
	if p.o.OldReplies {
		return z.send(nil, number, n.payload)
	}
	if n.seq == endOfReplay {
		topic = nil
	}
	return z.send(nil, topic, number, n.payload)
}
