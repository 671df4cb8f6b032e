package kvtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// Options configure a Publisher.
type Options struct {
	Encoding
	Topic       string
	Rank        int
	BufferSteps int    // batches kept for replay; 0 = 10,000 as vLLM
	OldReplies  bool   // replies without the topic frame, as vLLM 0.21
	NoReplay    bool   // no ROUTER socket at all
	Address     string // of the PUB socket; "" = a free port of 127.0.0.1
	ReplayAddr  string // of the ROUTER socket; "" = a free port of 127.0.0.1
}

// Fate states what happens to one batch's live copy.
type Fate int

// The verdicts.
const (
	Deliver Fate = iota
	Drop         // never sent live; in the replay buffer
	Hold         // sent live after the next one that is delivered
	Lose         // neither sent nor buffered: gone
)

// queueLimit is the PUB side's high-water mark per subscriber: beyond it,
// messages are dropped, as ZeroMQ does. vLLM sets 100,000.
const queueLimit = 100_000

type batch struct {
	seq     uint64
	payload []byte
}

// Publisher publishes KV events as one vLLM data-parallel rank does.
type Publisher struct {
	o   Options
	pub net.Listener
	rep net.Listener // nil without replay

	mu       sync.Mutex
	changed  sync.Cond
	fault    func(seq uint64) Fate
	seq      uint64
	buffer   []batch
	late     []batch
	peers    map[*peer]bool
	requests []uint64
	mute     bool
	closed   bool
	running  sync.WaitGroup
}

// peer is one connection to either socket.
type peer struct {
	z          *zmq4.Conn
	raw        net.Conn
	subscribed bool
	topic      string
	queue      chan [][]byte
}

// Start listens and serves until Close.
func Start(o Options) (*Publisher, error) {
	if o.BufferSteps <= 0 {
		o.BufferSteps = 10_000
	}
	p := &Publisher{o: o, peers: make(map[*peer]bool)}
	p.changed.L = &p.mu
	var err error
	if p.pub, err = listen(o.Address); err != nil {
		return nil, err
	}
	if !o.NoReplay {
		if p.rep, err = listen(o.ReplayAddr); err != nil {
			p.pub.Close()
			return nil, err
		}
		p.running.Go(func() { p.accept(p.rep, zmq4.Router, p.serveReplay) })
	}
	p.running.Go(func() { p.accept(p.pub, zmq4.Pub, p.serveEvents) })
	return p, nil
}

func listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("kvtest: %w", err)
	}
	return l, nil
}

// Endpoint is the PUB socket's, Address the same without its scheme.
func (p *Publisher) Endpoint() string { return "tcp://" + p.Address() }

// Address is the PUB socket's "ip:port".
func (p *Publisher) Address() string { return p.pub.Addr().String() }

// ReplayEndpoint is the ROUTER socket's; "" without one.
func (p *Publisher) ReplayEndpoint() string {
	if p.rep == nil {
		return ""
	}
	return "tcp://" + p.ReplayAddress()
}

// ReplayAddress is the ROUTER socket's "ip:port".
func (p *Publisher) ReplayAddress() string { return p.rep.Addr().String() }

// Publish encodes the events as one batch, as of now, and publishes it.
func (p *Publisher) Publish(events ...Event) (seq uint64) {
	at := float64(time.Now().UnixNano()) / 1e9
	return p.PublishRaw(p.o.Batch(at, p.o.Rank, events...))
}

// PublishRaw publishes a payload as it is.
func (p *Publisher) PublishRaw(payload []byte) (seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := batch{p.seq, payload}
	p.seq++
	verdict := Deliver
	if p.fault != nil {
		verdict = p.fault(b.seq)
	}
	if verdict != Lose {
		p.buffer = append(p.buffer, b)
		if over := len(p.buffer) - p.o.BufferSteps; over > 0 {
			p.buffer = append(p.buffer[:0], p.buffer[over:]...)
		}
	}
	switch verdict {
	case Deliver:
		p.send(b)
		p.flush()
	case Hold:
		p.late = append(p.late, b)
	}
	return b.seq
}

// SendLive sends a payload under any sequence to subscribers and nowhere else.
func (p *Publisher) SendLive(seq uint64, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(batch{seq, payload})
}

func (p *Publisher) send(b batch) {
	for q := range p.peers {
		if q.subscribed && strings.HasPrefix(p.o.Topic, q.topic) {
			select {
			case q.queue <- [][]byte{[]byte(p.o.Topic), binary.BigEndian.AppendUint64(nil, b.seq), b.payload}:
			default:
			}
		}
	}
}

func (p *Publisher) flush() {
	for _, b := range p.late {
		p.send(b)
	}
	p.late = nil
}

// Fault decides every later batch's fate; nil delivers all.
func (p *Publisher) Fault(f func(seq uint64) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Mute makes the replay socket take requests and never answer, or ends that.
func (p *Publisher) Mute(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

// Disconnect closes every connection; subscribers may come back at once.
func (p *Publisher) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
}

func (p *Publisher) disconnect() {
	for q := range p.peers {
		q.raw.Close()
		delete(p.peers, q)
	}
	p.changed.Broadcast()
}

// Restart is a kill and a new process on the same ports: connections break, the
// buffer is empty, sequences begin at 0.
func (p *Publisher) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
	p.seq, p.buffer, p.late = 0, nil, nil
}

// Requests returns the start sequences of the replays asked for so far.
func (p *Publisher) Requests() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]uint64(nil), p.requests...)
}

// WaitSubscribers waits until at least n subscriptions are in force.
func (p *Publisher) WaitSubscribers(ctx context.Context, n int) error {
	return p.wait(ctx, func() bool {
		have := 0
		for q := range p.peers {
			if q.subscribed {
				have++
			}
		}
		return have >= n
	})
}

// WaitRequests waits until at least n replays were asked for.
func (p *Publisher) WaitRequests(ctx context.Context, n int) error {
	return p.wait(ctx, func() bool { return len(p.requests) >= n })
}

func (p *Publisher) wait(ctx context.Context, done func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !done() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p.closed {
			return errors.New("kvtest: publisher closed")
		}
		p.changed.Wait()
	}
	return nil
}

// Close ends everything and waits for it.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.disconnect()
	p.mu.Unlock()
	p.pub.Close()
	if p.rep != nil {
		p.rep.Close()
	}
	p.running.Wait()
}

// accept serves each connection to l until Close.
func (p *Publisher) accept(l net.Listener, kind zmq4.SocketType, serve func(*peer)) {
	for {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		q := &peer{raw: raw}
		if kind == zmq4.Pub {
			q.queue = make(chan [][]byte, queueLimit)
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			raw.Close()
			continue
		}
		p.peers[q] = true
		p.mu.Unlock()
		p.running.Go(func() {
			defer p.drop(q)
			var err error
			if q.z, err = zmq4.Open(raw, null.Security(), kind, nil, true, nil); err == nil {
				serve(q)
			}
		})
	}
}

func (p *Publisher) drop(q *peer) {
	q.raw.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.peers, q)
	p.changed.Broadcast()
}

// serveEvents reads subscriptions and writes what is queued.
func (p *Publisher) serveEvents(q *peer) {
	done := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(done)
	writing.Go(func() {
		for {
			select {
			case frames := <-q.queue:
				if q.z.SendMsg(zmq4.NewMsgFrom(frames...)) != nil {
					q.raw.Close()
					return
				}
			case <-done:
				return
			}
		}
	})
	for {
		m, err := q.z.RecvMsg()
		if err != nil {
			q.raw.Close()
			return
		}
		if len(m.Frames) != 1 || len(m.Frames[0]) == 0 {
			continue
		}
		p.mu.Lock()
		q.subscribed, q.topic = m.Frames[0][0] == 1, string(m.Frames[0][1:])
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// serveReplay answers requests as vLLM's publisher does: every buffered batch
// from the asked one on, then the end marker.
func (p *Publisher) serveReplay(q *peer) {
	for {
		m, err := q.z.RecvMsg()
		if err != nil {
			return
		}
		// The identity frame is the ROUTER's own; the wire carries two.
		if len(m.Frames) != 2 || len(m.Frames[0]) != 0 || len(m.Frames[1]) != 8 {
			continue
		}
		from := binary.BigEndian.Uint64(m.Frames[1])
		p.mu.Lock()
		p.requests = append(p.requests, from)
		mute := p.mute
		buffer := append([]batch(nil), p.buffer...)
		p.changed.Broadcast()
		p.mu.Unlock()
		if mute {
			continue
		}
		for _, b := range buffer {
			if b.seq >= from && q.z.SendMsg(p.reply([]byte(p.o.Topic), b.seq, b.payload)) != nil {
				return
			}
		}
		if q.z.SendMsg(p.reply(nil, ^uint64(0), nil)) != nil {
			return
		}
	}
}

func (p *Publisher) reply(topic []byte, seq uint64, payload []byte) zmq4.Msg {
	number := binary.BigEndian.AppendUint64(nil, seq)
	if p.o.OldReplies {
		return zmq4.NewMsgFrom(nil, number, payload)
	}
	return zmq4.NewMsgFrom(nil, topic, number, payload)
}
