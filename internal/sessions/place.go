package sessions

import (
	"slices"
	"time"

	"warmroute/prefixhash"
)

const (
	// keptFor is how long the place of a request is kept whose client has left or was refused.
	keptFor = 15 * time.Minute
	// mostKept bounds the places that are kept.
	mostKept = 4096
)

// Place is the place of a request in the queue: those whose first attempt was sooner go first.
// Another attempt is one with the same prompt.
type Place struct {
	Last   prefixhash.Key // of the prompt
	Tokens int            // of the prompt
	At     time.Time      // of the first attempt
}

// keptPlace is one whose request does not wait.
type keptPlace struct {
	Place
	number uint64 // of its ticket
	since  time.Time
	told   bool // to other routers, or by one
}

// keptOf returns the index of the kept place of a prompt; -1: it has none.
func (q *queue) keptOf(last prefixhash.Key, tokens int) int {
	return slices.IndexFunc(q.kept, func(p keptPlace) bool { return p.Last == last && p.Tokens == tokens })
}

// keep keeps a place from now on, instead of an earlier one of the same prompt.
func (q *queue) keep(p keptPlace) {
	q.drop(p.Last, p.Tokens)
	if len(q.kept) == mostKept {
		q.kept = slices.Delete(q.kept, 0, 1)
	}
	q.kept = append(q.kept, p)
}

// drop forgets the place of a prompt.
func (q *queue) drop(last prefixhash.Key, tokens int) {
	if i := q.keptOf(last, tokens); i >= 0 {
		q.kept = slices.Delete(q.kept, i, i+1)
	}
}

// expire forgets the places of requests that have not come back.
func (q *queue) expire(now time.Time) {
	old := 0
	for old < len(q.kept) && now.Sub(q.kept[old].since) > keptFor {
		old++
	}
	q.kept = slices.Delete(q.kept, 0, old)
}

// Keep records a place that another router keeps: the retry may come here.
func (t *Table) Keep(model string, p Place, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.queues[model]; q != nil { // else no request of the model has come here yet
		t.number++
		q.keep(keptPlace{p, t.number, now, true})
	}
}
