package kvevents

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// queuedBytes bounds the messages that connections read or that wait for Run,
	// and heldBytes the live ones that wait for a replay: a minute of a very busy
	// replica's events.
	queuedBytes = 64 << 20
	heldBytes   = 64 << 20
	// roomWait bounds the wait for room in the middle of a connection's work. It
	// ends the wait of two connections for each other's half-read messages.
	roomWait = 30 * time.Second
)

var errNoRoom = errors.New("no room for the message: too many bytes wait to be applied")

// Room bounds the bytes of KV events in memory, for the subscriptions of one
// replica, which share it. A connection waits for room before it reads a message,
// so that TCP holds the publisher back. It is safe for concurrent use.
type Room struct {
	queued, held *semaphore.Weighted
}

// NewRoom returns a room for the subscriptions of one replica.
func NewRoom() *Room {
	return &Room{semaphore.NewWeighted(queuedBytes), semaphore.NewWeighted(heldBytes)}
}

// take waits for room for n bytes before they are read.
func (r *Room) take(ctx context.Context, n int64) error {
	if r.queued.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if r.queued.Acquire(ctx, n) != nil {
		return errNoRoom
	}
	return nil
}

// give gives back the room of take.
func (r *Room) give(n int64) {
	if n > 0 {
		r.queued.Release(n)
	}
}

// hold takes room for a frame that waits for a replay, if there is any.
func (r *Room) hold(f frame) bool { return r.held.TryAcquire(f.size()) }

// drop gives back the room of hold.
func (r *Room) drop(frames []frame) {
	for _, f := range frames {
		r.held.Release(f.size())
	}
}
