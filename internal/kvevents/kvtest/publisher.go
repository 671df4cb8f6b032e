package kvtest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"warmroute/internal/kvevents/publisher"
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

// Fate decides about one batch's live copy.
type Fate = publisher.Fate

// The fates there are.
const (
	Deliver = publisher.Deliver
	Drop    = publisher.Drop
	Hold    = publisher.Hold
	Lose    = publisher.Lose
)

// queueLimit is the PUB side's high-water mark per subscriber, as vLLM sets it.
const queueLimit = 100_000

// Publisher publishes KV events as one vLLM data-parallel rank does.
type Publisher struct {
	*publisher.Publisher
	o    Options
	stop context.CancelFunc
	done chan struct{}
}

// Start listens and serves until Close.
func Start(o Options) (*Publisher, error) {
	pub, err := listen(o.Address)
	if err != nil {
		return nil, err
	}
	var replay net.Listener
	if !o.NoReplay {
		if replay, err = listen(o.ReplayAddr); err != nil {
			pub.Close()
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{o: o, stop: stop, done: make(chan struct{}), Publisher: publisher.New(publisher.Options{
		Topic: o.Topic, BufferSteps: cmp.Or(o.BufferSteps, 10_000), Queue: queueLimit, OldReplies: o.OldReplies,
	}, pub, replay)}
	go func() {
		defer close(p.done)
		p.Run(ctx)
	}()
	return p, nil
}

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("kvtest: %w", err)
	}
	return l, nil
}

// Address is the PUB socket's "ip:port", ReplayAddress the ROUTER socket's.
func (p *Publisher) Address() string { return strings.TrimPrefix(p.Endpoint(), "tcp://") }

// ReplayAddress is the ROUTER socket's "ip:port".
func (p *Publisher) ReplayAddress() string { return strings.TrimPrefix(p.ReplayEndpoint(), "tcp://") }

// Publish encodes the events as one batch, as of now, and publishes it.
func (p *Publisher) Publish(events ...Event) (seq uint64) {
	at := float64(time.Now().UnixNano()) / 1e9
	return p.PublishRaw(p.o.Batch(at, p.o.Rank, events...))
}

// PublishRaw publishes a payload unchanged.
func (p *Publisher) PublishRaw(payload []byte) (seq uint64) { return p.Publisher.Publish(payload) }

// Close ends everything and waits for it.
func (p *Publisher) Close() {
	p.stop()
	<-p.done
}
