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
	number uint64         // the order of equal times; each router has its own
}

// keptPlace is one whose request does not wait.
type keptPlace struct {
	Place
	since time.Time
	told  bool // to other routers, or by one
}

// keptOf returns the index of the kept place of the same prompt as p; -1: it has none.
func (q *queue) keptOf(p Place) int {
	return slices.IndexFunc(q.kept, func(k keptPlace) bool { return k.Last == p.Last && k.Tokens == p.Tokens })
}

// keep keeps a place from now on, instead of an earlier one of the same prompt.
func (q *queue) keep(p Place, now time.Time, told bool) {
	q.drop(p)
	if len(q.kept) == mostKept {
		q.kept = slices.Delete(q.kept, 0, 1)
	}
	q.kept = append(q.kept, keptPlace{p, now, told})
}

// drop forgets the kept place of the same prompt as p.
func (q *queue) drop(p Place) {
	if i := q.keptOf(p); i >= 0 {
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
		p.number = t.number
		q.keep(p, now, true)
	}
}
