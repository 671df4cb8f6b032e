package dashboard

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
)

// Every is the time between samples, Span the time for which they are kept.
const (
	Every = 5 * time.Second
	Span  = time.Hour
)

// mostModels bounds the models that have points of their own; the others count as one
// without a name.
const mostModels = 32

// Point is one model between two samples: numbers at the end, and what was counted in
// between. Sums are of all its ranks, so rates and means of any models and samples are
// quotients of sums.
type Point struct {
	InFlight    int         `json:"in_flight"`
	Queued      float64     `json:"queued_prefill_seconds"`
	Hits        float64     `json:"hit_tokens,omitzero"`
	Prompt      float64     `json:"prompt_tokens,omitzero"`
	TTFT        fleet.Spent `json:"ttft,omitzero"`
	FirstTokens []float64   `json:"first_tokens,omitempty"` // by fleet.FirstTokenBounds, without zeros at the end
	Queue       fleet.Spent `json:"queue,omitzero"`
	Prefill     fleet.Spent `json:"prefill,omitzero"`
	Decode      fleet.Spent `json:"decode,omitzero"`
	Decisions   Decisions   `json:"decisions,omitempty"`
}

// Sample is all models at a moment.
type Sample struct {
	Number uint64           `json:"number"` // from 1
	At     time.Time        `json:"at"`
	Models map[string]Point `json:"models"`           // "": decisions without a model, and models beyond a limit
	Router fleet.Spent      `json:"router,omitzero"`  // the time of requests in the router
	Splits *Splits          `json:"splits,omitempty"` // nil: no request might have been split
}

// Splits are the requests of all models between two samples that might have been split.
type Splits struct {
	Reasons map[decision.SplitReason]uint64 `json:"reasons"` // requests
	Moved   uint64                          `json:"moved_tokens"`
	Prefill fleet.Spent                     `json:"prefill,omitzero"`
	Move    fleet.Spent                     `json:"move,omitzero"`
}

// splitsSince returns what rose between two readings, nil for nothing.
func splitsSince(old, now *decision.Splits) *Splits {
	s := &Splits{
		Reasons: map[decision.SplitReason]uint64{}, Moved: now.Moved - old.Moved, Prefill: spent(now.Prefill, -1, old.Prefill), Move: spent(now.Move, -1, old.Move),
	}
	for why, n := range now.Reasons {
		if n -= old.Reasons[why]; n > 0 {
			s.Reasons[why] = n
		}
	}
	if len(s.Reasons) == 0 && s.Moved == 0 && s.Prefill == (fleet.Spent{}) && s.Move == (fleet.Spent{}) {
		return nil
	}
	return s
}

// Total is one model since the start of the history.
type Total struct {
	Hits   float64 `json:"hit_tokens"`
	Prompt float64 `json:"prompt_tokens"`
	// Saved are the seconds of prefill that the hits would have taken, at the mean speed of
	// the tokens that were computed; nil while none were.
	Saved *float64 `json:"saved_prefill_seconds,omitempty"`

	prefill float64 // seconds
}

// History keeps the last hour's samples, and totals since its start.
type History struct {
	now   func() time.Time
	read  func() Reading
	since time.Time

	mu      sync.Mutex
	ranks   map[index.Holder]seen // at the last sample
	at      time.Time             // of the last sample
	decided map[string]Decisions  // at the last sample
	router  fleet.Spent           // at the last sample
	splits  decision.Splits       // at the last sample
	totals  map[string]Total
	samples []Sample // a ring of Span/Every
	next    int
	number  uint64 // of the last sample
}

// seen is what was seen of a rank, whatever process is there.
type seen struct {
	at      time.Time // of the last sample with its counters, or the last without it
	counted bool      // the last sample had its counters
	joined  uint64
	Counters
}

// NewHistory returns an empty history of what read returns.
func NewHistory(now func() time.Time, read func() Reading) *History {
	return &History{now: now, read: read, since: now(), at: now(), totals: map[string]Total{}, samples: make([]Sample, 0, Span/Every)}
}

// Sample takes one sample now.
func (h *History) Sample() {
	r := h.read()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	now := h.now()
	s := Sample{Number: h.number, At: now, Models: h.points(&r, now)}
	h.at = now
	if h.number > 1 {
		s.Router, s.Splits = spent(r.Router, -1, h.router), splitsSince(&h.splits, &r.Splits)
	}
	h.router, h.splits = r.Router, r.Splits
	for model, p := range s.Models {
		h.count(model, &p)
	}
	if len(h.samples) < cap(h.samples) {
		h.samples = append(h.samples, s)
		return
	}
	h.samples[h.next] = s
	h.next = (h.next + 1) % len(h.samples)
}

// points returns the point of each model and remembers what was read.
func (h *History) points(r *Reading, now time.Time) map[string]Point {
	out, counted, name := map[string]Point{}, map[string]Counters{}, r.names()
	ranks := make(map[index.Holder]seen, len(r.Ranks))
	for i := range r.Ranks {
		k := &r.Ranks[i]
		model := name(k.Model)
		p := out[model]
		p.InFlight, p.Queued = p.InFlight+k.InFlight, p.Queued+k.Queued
		out[model] = p
		of := index.Holder{Replica: k.Replica, Rank: k.Rank}
		old, listed := h.ranks[of]
		if !listed {
			old.at = h.at
		}
		if !k.Counted {
			ranks[of] = seen{at: old.at}
			continue
		}
		ranks[of] = seen{now, true, k.Joined, k.Counters}
		known := old.counted && old.joined == k.Joined
		if !known {
			old.Counters = Counters{}
		}
		// The first reading of a process may be of years, unless it is younger than the
		// last look at its place.
		if more := k.Counters.plus(-1, old.Counters); (known || k.Began.After(old.at)) && more.rose() {
			counted[model] = counted[model].plus(1, more)
		}
	}
	for model, decided := range r.Decided {
		p := out[name(model)]
		for class, n := range decided {
			if n -= h.decided[model][class]; n > 0 && h.number > 1 {
				if p.Decisions == nil {
					p.Decisions = Decisions{}
				}
				p.Decisions[class] += n
			}
		}
		out[name(model)] = p
	}
	h.ranks, h.decided = ranks, r.Decided
	for model, p := range out {
		c := counted[model]
		p.Hits, p.Prompt, p.TTFT, p.Queue, p.Prefill, p.Decode = c.Hits, c.Prompt, c.TTFT, c.Queue, c.Prefill, c.Decode
		p.FirstTokens = c.firstTokens()
		out[model] = p
	}
	return out
}

// count adds a point to its model's total.
func (h *History) count(model string, p *Point) {
	t, known := h.totals[model]
	if !known && len(h.totals) > mostModels {
		model, t = "", h.totals[""]
	}
	t.Hits, t.Prompt, t.prefill = t.Hits+p.Hits, t.Prompt+p.Prompt, t.prefill+p.Prefill.Seconds
	if computed := t.Prompt - t.Hits; computed > 0 && t.prefill > 0 {
		saved := t.Hits * t.prefill / computed
		t.Saved = &saved
	}
	h.totals[model] = t
}

// Excerpt is what GET /debug/history answers.
type Excerpt struct {
	Every   float64                            `json:"every_seconds"`
	Now     time.Time                          `json:"now"`
	Since   time.Time                          `json:"since"` // of the totals
	Bounds  []float64                          `json:"first_token_bounds"`
	Classes map[decision.Reason]decision.Class `json:"classes"`
	Totals  map[string]Total                   `json:"totals"`
	Samples []Sample                           `json:"samples"` // oldest first
}

// After returns the samples after that of the number, all if there is no such sample yet.
func (h *History) After(number uint64) Excerpt {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Excerpt{
		Every: Every.Seconds(), Now: h.now(), Since: h.since, Bounds: fleet.FirstTokenBounds[:], Classes: map[decision.Reason]decision.Class{},
		Totals: maps.Clone(h.totals), Samples: append(append([]Sample{}, h.samples[h.next:]...), h.samples[:h.next]...),
	}
	for _, r := range decision.Reasons() {
		p.Classes[r] = r.Class()
	}
	if number <= h.number {
		p.Samples = slices.DeleteFunc(p.Samples, func(s Sample) bool { return s.Number <= number })
	}
	return p
}

// ServeHTTP answers with the samples after the query's after.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, err := uint64(0), error(nil)
	if text := r.URL.Query().Get("after"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			http.Error(w, "after is the number of a sample", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(h.After(after)) // the client has gone
}
