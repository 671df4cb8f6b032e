package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Every is the time between samples, Span the time for which they are kept.
const (
	Every = 5 * time.Second
	Span  = time.Hour
)

// Counters are one model's numbers at a moment, summed over its replicas.
// Hits, Queries, TTFTSum and TTFTCount only rise while a replica lives.
type Counters struct {
	InFlight  int     // requests sent by hint and not ended
	Queued    float64 // seconds of prefill that were sent and that no replica has begun to answer
	Hits      float64 // prompt tokens found in prefix caches
	Queries   float64 // prompt tokens looked up
	TTFTSum   float64 // seconds to first tokens
	TTFTCount float64 // first tokens
}

// Point is one model between two samples. Nil means no value.
type Point struct {
	InFlight int      `json:"in_flight"`
	Queued   float64  `json:"queued_prefill_seconds"`
	HitRate  *float64 `json:"hit_rate,omitempty"`
	TTFT     *float64 `json:"ttft_seconds,omitempty"` // mean
}

// Sample is all models at a moment.
type Sample struct {
	At     time.Time        `json:"at"`
	Models map[string]Point `json:"models"`
}

// History keeps the last hour's samples.
type History struct {
	now  func() time.Time
	read func() map[string]Counters

	mu      sync.Mutex
	before  map[string]Counters
	samples []Sample // a ring of Span/Every
	next    int
}

// NewHistory returns an empty history of the counters that read returns, by
// model.
func NewHistory(now func() time.Time, read func() map[string]Counters) *History {
	return &History{now: now, read: read, samples: make([]Sample, 0, Span/Every)}
}

// Run samples until ctx ends.
func (h *History) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	h.Sample()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.Sample()
		}
	}
}

// Sample takes one sample now.
func (h *History) Sample() {
	counters := h.read()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Sample{At: h.now(), Models: make(map[string]Point, len(counters))}
	for model, c := range counters {
		p := Point{InFlight: c.InFlight, Queued: c.Queued}
		if old, known := h.before[model]; known {
			p.HitRate = ratio(c.Hits-old.Hits, c.Queries-old.Queries)
			p.TTFT = ratio(c.TTFTSum-old.TTFTSum, c.TTFTCount-old.TTFTCount)
		}
		s.Models[model] = p
	}
	h.before = counters
	if len(h.samples) < cap(h.samples) {
		h.samples = append(h.samples, s)
		return
	}
	h.samples[h.next] = s
	h.next = (h.next + 1) % len(h.samples)
}

// ratio returns part/whole, or nil if nothing was counted or a counter fell.
func ratio(part, whole float64) *float64 {
	if !(whole > 0) || part < 0 {
		return nil
	}
	r := part / whole
	return &r
}

// Samples returns the kept samples, oldest first.
func (h *History) Samples() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(append([]Sample{}, h.samples[h.next:]...), h.samples[:h.next]...)
}

// ServeHTTP answers {"every_seconds": 5, "samples": [...]}, oldest first.
func (h *History) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(struct { // the client has gone
		Every   float64  `json:"every_seconds"`
		Samples []Sample `json:"samples"`
	}{Every.Seconds(), h.Samples()})
}
