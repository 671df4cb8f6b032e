package policy

// Candidate is one KV cache (a replica's data-parallel rank) as the decision
// sees it.
type Candidate struct {
	Hash        uint64  // identity, spreads ties; equal for the same replica and rank in every process
	Matched     int     // prompt tokens held on the GPU, reported or just routed there
	Reported    int     // of these, tokens it reported
	Lower       int     // prompt tokens held when lower tiers count too; at least Matched
	InFlight    int     // requests this router has there
	Awaiting    int     // of these, requests whose first token has not come
	Pending     float64 // seconds of prefill of the awaiting requests
	Live        float64 // context tokens of the requests in flight, and of those that came around this router
	Foreign     float64 // seconds of queued prefill that came around this router, from scraped metrics
	Speed       float64 // actual over modelled first-token time, learned; 0 counts as 1
	CacheWeight float64 // recency-decayed size of what was placed there lately, in blocks
	Failing     bool    // it failed requests lately: last resort
	Adapter     Adapter // residency of the request's LoRA adapter
}

// Adapter says whether a candidate has the request's LoRA adapter at hand.
type Adapter uint8

const (
	AdapterReady   Adapter = iota // loaded, or the request wants none
	AdapterFree                   // not loaded, a slot is free
	AdapterEvicted                // not loaded, loading it evicts another
)

// Request is what the decision knows of the request itself.
type Request struct {
	Input     int    `json:"input_tokens"`               // prompt tokens; an estimate where there are no token ids
	Matchable int    `json:"matchable_tokens,omitempty"` // of these, tokens a match can cover; 0 = all
	Ordinal   uint64 `json:"ordinal"`                    // number of the decision in this process, spreads ties
}

// Verdict says what became of a candidate.
type Verdict uint8

const (
	Ranked      Verdict = iota // eligible, costed
	LoadGuarded                // in flight beyond the guard
	Shunned                    // it failed requests lately
)

func (v Verdict) String() string {
	switch v {
	case Ranked:
		return "ranked"
	case LoadGuarded:
		return "load_guarded"
	case Shunned:
		return "failing"
	}
	return "unknown"
}

// MarshalText writes the verdict's name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Score is a candidate's result.
type Score struct {
	Cost    float64 `json:"cost"` // ttft: seconds; filter-then-score: below 0 for a hot match, else the cache weight. Lower wins
	Verdict Verdict `json:"verdict"`
}
