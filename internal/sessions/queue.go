package sessions

import (
	"slices"
	"time"
)

// The time over which departures count, in parts that are forgotten one by one.
const (
	lately = 15 * time.Minute
	parts  = 15
)

const (
	// kept is how long the place of a request is kept whose client has left or was refused.
	kept = 15 * time.Minute
	// mostKept bounds the places that are kept.
	mostKept = 4096
)

// queue has the tickets of one model by number: of requests that wait, and of those whose clients
// have gone.
type queue struct {
	set     *Settings // the latest of the model
	tickets []*Ticket
	waiting int

	since time.Time // of the first ticket
	part  int64     // the latest part with departures
	left  [parts]int

	told   time.Time // the first attempt of the first, as other routers were told; zero: none waits
	toldAt time.Time
	others map[string]head // by router
}

// holds reports whether t is in the queue.
func (q *queue) holds(t *Ticket) bool {
	_, found := q.find(t)
	return found
}

func (q *queue) find(t *Ticket) (int, bool) {
	return slices.BinarySearchFunc(q.tickets, t.number, func(of *Ticket, number uint64) int {
		switch {
		case of.number < number:
			return -1
		case of.number > number:
			return 1
		}
		return 0
	})
}

// ahead returns the number of waiting requests before t; nil: of all.
func (q *queue) ahead(t *Ticket) (n int) {
	for _, of := range q.tickets {
		if t != nil && of.number >= t.number {
			break
		}
		if of.gone.IsZero() {
			n++
		}
	}
	return n
}

// first returns the first request that waits; nil: none does.
func (q *queue) first() *Ticket {
	for _, t := range q.tickets {
		if t.gone.IsZero() {
			return t
		}
	}
	return nil
}

// put puts t at its place.
func (q *queue) put(t *Ticket) {
	if q.since.IsZero() {
		q.since = t.at
	}
	if i, found := q.find(t); !found {
		q.tickets = slices.Insert(q.tickets, i, t)
	}
	if t.gone.IsZero() {
		q.waiting++
	}
}

// depart takes t out, which is sent.
func (q *queue) depart(t *Ticket, now time.Time) {
	if i, found := q.find(t); found {
		q.remove(i)
		q.turn(now)
		q.left[q.part%parts]++
	}
}

func (q *queue) remove(i int) {
	t := q.tickets[i]
	if t.gone.IsZero() {
		q.waiting--
	}
	if t.session.ticket == t {
		t.session.ticket = nil
	}
	q.tickets = slices.Delete(q.tickets, i, i+1)
}

// expire forgets the places of requests that have not come back.
func (q *queue) expire(now time.Time) {
	over := len(q.tickets) - q.waiting - mostKept
	for i := 0; i < len(q.tickets); {
		t := q.tickets[i]
		if !t.gone.IsZero() && (over > 0 || now.Sub(t.gone) > kept) {
			q.remove(i)
			over--
			continue
		}
		i++
	}
}

// empty lets all go.
func (q *queue) empty() {
	for len(q.tickets) > 0 {
		q.tickets[0].call()
		q.remove(0)
	}
}

// turn forgets departures that are too old.
func (q *queue) turn(now time.Time) {
	part := now.UnixNano() / int64(lately/parts)
	for q.part < part {
		q.part = max(q.part+1, part-parts)
		q.left[q.part%parts] = 0
	}
}

// departures returns how many requests left the queue, and in which time.
func (q *queue) departures(now time.Time) (n int, over time.Duration) {
	q.turn(now)
	for _, left := range q.left {
		n += left
	}
	return n, min(lately, max(time.Second, now.Sub(q.since)))
}
