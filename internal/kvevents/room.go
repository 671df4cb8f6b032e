package kvevents

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// roomBytes bounds the messages in memory, of event sockets and of replays each: a minute of
	// a very busy replica's events.
	roomBytes = 64 << 20
	// roomWait bounds the wait for room in the middle of a connection's work. It
	// ends the wait of two connections for each other's half-read messages.
	roomWait = 30 * time.Second
)

var errNoRoom = errors.New("no room for the message: too many bytes wait to be applied")

// Room bounds the bytes of KV events in memory, for the subscriptions of one
// replica, which share it. A connection waits for room before it reads a message,
// so that TCP holds the publisher back. Messages of event sockets wait for replays,
// so these have room of their own. It is safe for concurrent use.
type Room struct{ live, replayed share }

// share is the room of one kind of connection.
type share struct{ *semaphore.Weighted }

// NewRoom returns a room for the subscriptions of one replica.
func NewRoom() *Room {
	return &Room{share{semaphore.NewWeighted(roomBytes)}, share{semaphore.NewWeighted(roomBytes)}}
}

// take waits for room for n bytes before they are read.
func (s share) take(ctx context.Context, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if s.Acquire(ctx, n) != nil {
		return errNoRoom
	}
	return nil
}

// give gives back the room of take.
func (s share) give(n int64) {
	if n > 0 {
		s.Release(n)
	}
}
