package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/go-zeromq/zmq4"
)

// endOfReplay is the sequence with which vLLM's publisher ends a replay: -1,
// signed.
const endOfReplay = ^uint64(0)

// replayMost bounds the batches of one replay: 26 times vLLM's buffer.
const replayMost = 1 << 18

var (
	errNoSequence = errors.New("message without an 8-byte sequence")
	errEndless    = errors.New("a replay without an end")
)

// reply is one part of a replay: a frame, or its end.
type reply struct {
	id    uint64
	frame frame
	end   bool
	err   error // with end: nil at the end marker
}

// replay requests every buffered batch from a.from on and sends the frames to
// out, then exactly one end.
func replay(ctx context.Context, o *Options, a asked, out chan<- *reply) {
	put := func(r reply) bool {
		r.id = a.id
		select {
		case out <- &r:
			return true
		case <-ctx.Done():
			o.Room.replayed.give(r.frame.taken)
			return false
		}
	}
	put(reply{end: true, err: receive(ctx, o, a, func(f frame) bool { return put(reply{frame: f}) })})
}

// receive makes the connection of one replay and passes on its frames.
// ReplayPatience bounds the wait for each of them, replayMost their number and
// ReplayWithin the time of all.
func receive(ctx context.Context, o *Options, a asked, put func(frame) bool) error {
	if a.attempt > 0 && a.purpose != probe {
		select {
		case <-time.After(o.RetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c, err := dial(ctx, o.ReplayEndpoint, zmq4.Dealer, o.Room.replayed)
	if err != nil {
		return err
	}
	defer c.close()
	// An empty frame first, as a REQ socket would send: the publisher expects it.
	if err := c.send(nil, binary.BigEndian.AppendUint64(nil, a.from)); err != nil {
		return err
	}
	end := time.Now().Add(o.ReplayWithin)
	for n := 0; ; n++ {
		if n == replayMost || time.Now().After(end) {
			return errEndless
		}
		if err := c.patience(o.ReplayPatience); err != nil {
			return err
		}
		frames, taken, err := c.recv()
		if err != nil {
			return err
		}
		seq, payload, err := lastTwo(frames)
		if end := seq == endOfReplay && len(payload) == 0; err != nil || end {
			o.Room.replayed.give(taken)
			return err
		}
		if !put(frame{seq: seq, payload: payload, taken: taken}) {
			return ctx.Err()
		}
	}
}

// lastTwo finds sequence and payload in a message. They are the last two frames
// of every shape: live [topic, seq, payload], replayed ["", topic, seq, payload]
// (vLLM 0.32, SGLang 0.5.22) or ["", seq, payload] (vLLM 0.21, SGLang 0.5.21).
func lastTwo(frames [][]byte) (seq uint64, payload []byte, err error) {
	n := len(frames)
	if n < 2 || len(frames[n-2]) != 8 {
		return 0, nil, errNoSequence
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], nil
}
