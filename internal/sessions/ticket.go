package sessions

import (
	"time"

	"warmroute/internal/decision/history"
)

// Ticket is a request that is held, or was refused.
type Ticket struct {
	of     *Table
	queue  *queue
	place  Place
	ready  chan struct{}
	called bool // ready is closed

	session *Session
	prompt  history.Prompt // the keys are its own
	answer  int
	sites   []Site
	fleet   uint64 // Request.Fleet
	why     Wait
}

// Wait says what a held request waits for, or what one lacks that goes all the same.
type Wait struct {
	Ahead   int           // requests that came before it and are held; of each other router one is known
	Live    int           // sessions that work where it lacks the least room
	Context int           // tokens of its prompt
	Lacking int           // tokens that it would take from these sessions
	Waited  time.Duration // since its first attempt
}

// Ready is closed when the request may be decided again. The decision may hold it once more: the
// channel is then another one.
func (t *Ticket) Ready() <-chan struct{} {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	return t.ready
}

// Wait returns what the request waits for, as of its latest decision.
func (t *Ticket) Wait(now time.Time) Wait {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	w := t.why
	w.Ahead, w.Waited = t.queue.ahead(t)+t.queue.behind(t, now), now.Sub(t.place.At)
	return w
}

// Leave records that the client of a held request has gone. Its place is kept for a retry of the
// same prompt.
func (t *Ticket) Leave(now time.Time) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if i, held := t.queue.find(t); held {
		t.queue.remove(i)
		t.queue.keep(t.place, now, false)
	}
}

// call lets the request be decided again.
func (t *Ticket) call() {
	if !t.called {
		t.called = true
		close(t.ready)
	}
}

// Longest is the longest RetryAfter.
const Longest = 900 * time.Second

// RetryAfter returns the whole time that the request is expected to wait from now on, by how fast
// requests left the queue lately.
func (t *Ticket) RetryAfter(now time.Time) time.Duration {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	left, over := t.queue.departures(now)
	if left == 0 {
		return Longest
	}
	wait := time.Duration(float64(over) / float64(left) * float64(t.queue.ahead(t)+1))
	return min(Longest, max(time.Second, wait))
}
