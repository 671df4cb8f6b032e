package sessions

import "time"

// Ticket is a request that is held, or was refused.
type Ticket struct{ ready chan struct{} }

// Ready is closed when the request may be decided again. The decision may hold it once more: the
// channel is then another one.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Leave records that the client of a held request has gone. Its place is kept for a retry of the
// same prompt.
func (t *Ticket) Leave(now time.Time) {}

// RetryAfter returns the whole time that a request which comes now is expected to wait, by how
// fast requests left the queue lately; at most 900 s.
func (t *Ticket) RetryAfter(now time.Time) time.Duration { return 0 }
