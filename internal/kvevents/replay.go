package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/go-zeromq/zmq4"
)

// endOfReplay is the sequence vLLM's publisher ends a replay with: -1, signed.
const endOfReplay = ^uint64(0)

// retryAfter is the wait before a failed replay or connection is tried again:
// long enough for a busy publisher (it looks for replays every 0.1 s), short
// enough that a restarted one is found within a fraction of a second.
const retryAfter = 200 * time.Millisecond

var errNoSequence = errors.New("message without an 8-byte sequence")

// reply is one thing a replay brought: a frame, or its end.
type reply struct {
	id    uint64
	frame frame
	end   bool
	err   error // with end: nil at the end marker
}

// replay requests every buffered batch from a.from on and sends what
// comes to out, then exactly one end. patience bounds the wait for each reply.
func replay(ctx context.Context, endpoint string, a asked, patience time.Duration, out chan<- *reply) {
	put := func(r reply) bool {
		r.id = a.id
		select {
		case out <- &r:
			return true
		case <-ctx.Done():
			return false
		}
	}
	put(reply{end: true, err: receive(ctx, endpoint, a, patience, func(f frame) bool { return put(reply{frame: f}) })})
}

func receive(ctx context.Context, endpoint string, a asked, patience time.Duration, put func(frame) bool) error {
	if a.attempt > 0 && a.purpose != probe {
		t := time.NewTimer(retryAfter)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c, err := dial(ctx, endpoint, zmq4.Dealer)
	if err != nil {
		return err
	}
	defer c.close()
	// An empty frame first, as a REQ socket would send: the publisher expects it.
	if err := c.send(nil, binary.BigEndian.AppendUint64(nil, a.from)); err != nil {
		return err
	}
	for {
		if err := c.patience(patience); err != nil {
			return err
		}
		frames, err := c.recv()
		if err != nil {
			return err
		}
		seq, payload, err := lastTwo(frames)
		if err != nil {
			return err
		}
		if seq == endOfReplay && len(payload) == 0 {
			return nil
		}
		if !put(frame{seq: seq, payload: payload}) {
			return ctx.Err()
		}
	}
}

// lastTwo finds sequence and payload in a message. They are the last two frames
// in every shape there is: live [topic, seq, payload], replayed
// ["", topic, seq, payload] (0.32) or ["", seq, payload] (0.21).
func lastTwo(frames [][]byte) (seq uint64, payload []byte, err error) {
	n := len(frames)
	if n < 2 || len(frames[n-2]) != 8 {
		return 0, nil, errNoSequence
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], nil
}
