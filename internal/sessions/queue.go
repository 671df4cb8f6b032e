package sessions

import (
	"cmp"
	"slices"
	"time"

	"warmroute/internal/decision/policy"
)

// The time over which departures count, in parts that are forgotten one by one.
const (
	lately = 15 * time.Minute
	parts  = 15
)

// queue has the tickets of one model by their places, and the places of requests whose clients have
// gone.
type queue struct {
	set     *policy.Sessions // the latest of the model
	tickets []*Ticket
	kept    []keptPlace // the one that was kept last is the last

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
	return slices.BinarySearchFunc(q.tickets, t, func(of, t *Ticket) int {
		return cmp.Or(of.place.At.Compare(t.place.At), cmp.Compare(of.place.number, t.place.number))
	})
}

// ahead returns the number of waiting requests before t; nil: of all.
func (q *queue) ahead(t *Ticket) int {
	if t == nil {
		return len(q.tickets)
	}
	n, _ := q.find(t)
	return n
}

// first returns the first request that waits; nil: none does.
func (q *queue) first() *Ticket {
	if len(q.tickets) == 0 {
		return nil
	}
	return q.tickets[0]
}

// put puts t at its place, which is kept no longer.
func (q *queue) put(t *Ticket, now time.Time) {
	if q.since.IsZero() {
		q.since = now
	}
	i, _ := q.find(t)
	q.tickets = slices.Insert(q.tickets, i, t)
	q.drop(t.place)
}

// depart takes t out, which is sent.
func (q *queue) depart(t *Ticket, now time.Time) {
	if i, found := q.find(t); found {
		q.remove(i)
	}
	q.drop(t.place)
	q.turn(now)
	q.left[q.part%parts]++
}

func (q *queue) remove(i int) {
	t := q.tickets[i]
	if t.session.ticket == t {
		t.session.ticket = nil
	}
	q.tickets = slices.Delete(q.tickets, i, i+1)
}

// empty lets all go.
func (q *queue) empty() {
	q.kept = nil
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
