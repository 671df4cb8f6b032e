package vllmsim

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/kvevents/publisher"
)

// subscriberQueue is the number of batches that wait for one slow subscriber; the
// publisher drops further ones for it. vLLM's high-water mark is 100,000; a simulated
// publisher should show a lost batch sooner.
const subscriberQueue = 10_000

// eventQueue is one rank's publisher and the queue of batches before it.
type eventQueue struct {
	*publisher.Publisher
	faults *atomic.Pointer[Faults]
	toSend chan outgoing
	ended  chan struct{} // closed when run returns
}

type outgoing struct {
	due     time.Time
	payload []byte
}

func newEventQueue(o Options, pub, replay net.Listener, faults *atomic.Pointer[Faults]) *eventQueue {
	q := &eventQueue{
		Publisher: publisher.New(publisher.Options{Topic: o.Topic, BufferSteps: o.BufferSteps, Queue: subscriberQueue, OldReplies: o.Version != V032}, pub, replay),
		faults:    faults,
		// vLLM's max_queue_size is 100,000 batches, and its scheduler waits while that
		// many are queued. This queue is shorter.
		toSend: make(chan outgoing, 1024),
		ended:  make(chan struct{}),
	}
	q.Fault(func(seq uint64) publisher.Fate {
		if f := faults.Load(); f.DropAll || f.DropEvery > 0 && (seq+1)%uint64(f.DropEvery) == 0 {
			return publisher.Drop
		}
		return publisher.Deliver
	})
	return q
}

// publish queues one encoded batch. It waits while the queue is full, as
// vLLM's scheduler does, but not after run has ended.
func (q *eventQueue) publish(payload []byte) {
	o := outgoing{payload: payload}
	if d := q.faults.Load().EventDelay; d > 0 {
		o.due = time.Now().Add(d)
	}
	select {
	case q.toSend <- o:
	case <-q.ended:
	}
}

// run serves until ctx ends and every goroutine that it started has ended.
func (q *eventQueue) run(ctx context.Context) {
	defer close(q.ended)
	var serving sync.WaitGroup
	serving.Go(func() { q.Run(ctx) })
	defer serving.Wait()
	for {
		select {
		case o := <-q.toSend:
			if o.due.IsZero() || sleep(ctx, time.Until(o.due)) {
				q.Publish(o.payload)
			}
		case <-ctx.Done():
			return
		}
	}
}
