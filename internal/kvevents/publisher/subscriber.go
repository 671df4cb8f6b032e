package publisher

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
)

// subscriber is one SUB. Its topics are guarded by the publisher's lock.
type subscriber struct {
	queue  chan numbered
	topics [][]byte
}

func (s *subscriber) wants(topic []byte) bool {
	return s != nil && slices.ContainsFunc(s.topics, func(t []byte) bool { return bytes.HasPrefix(topic, t) })
}

// subscribe books a subscription (first byte 1) or its end (0).
func (s *subscriber) subscribe(m [][]byte) {
	if len(m) != 1 || len(m[0]) == 0 {
		return
	}
	topic := m[0][1:]
	switch m[0][0] {
	case 1:
		s.topics = append(s.topics, topic)
	case 0:
		if i := slices.IndexFunc(s.topics, func(t []byte) bool { return bytes.Equal(t, topic) }); i >= 0 {
			s.topics = slices.Delete(s.topics, i, i+1)
		}
	}
}

// serveSubscriber sends payloads to one SUB until it leaves.
func (p *Publisher) serveSubscriber(ctx context.Context, c net.Conn) {
	z, err := acceptZMTP(c, "PUB")
	if err != nil {
		return
	}
	s := &subscriber{queue: make(chan numbered, p.o.Queue)}
	p.update(func() {
		if _, open := p.conns[c]; open {
			p.conns[c] = s
		}
	})
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
			return
		}
		p.update(func() { s.subscribe(m) })
	}
}

func (s *subscriber) send(ctx context.Context, z *zmtpConn, topic []byte) {
	for {
		select {
		case n := <-s.queue:
			if z.send(topic, binary.BigEndian.AppendUint64(nil, n.seq), n.payload) != nil {
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

// WaitSubscribers waits until at least n subscriptions are in force.
func (p *Publisher) WaitSubscribers(ctx context.Context, n int) error {
	return p.wait(ctx, func() bool {
		have := 0
		for _, s := range p.conns {
			if s != nil && len(s.topics) > 0 {
				have++
			}
		}
		return have >= n
	})
}

// WaitRequests waits until at least n replays were requested.
func (p *Publisher) WaitRequests(ctx context.Context, n int) error {
	return p.wait(ctx, func() bool { return len(p.requests) >= n })
}

func (p *Publisher) wait(ctx context.Context, done func() bool) error {
	stop := context.AfterFunc(ctx, func() { p.update(func() {}) })
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !done() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case p.ended:
			return errors.New("the publisher has ended")
		}
		p.changed.Wait()
	}
	return nil
}
