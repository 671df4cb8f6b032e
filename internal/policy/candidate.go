package policy

// Candidate is one KV cache (a replica's data-parallel rank) as the decision
// sees it.
type Candidate struct {
	Hash     uint64  // identity, spreads ties; equal for the same replica and rank in every process
	Matched  int     // prompt tokens held on the GPU, reported or just routed there
	Lower    int     // prompt tokens held when lower tiers count too; at least Matched
	InFlight int     // requests this router has there
	Awaiting int     // of these, requests whose first token has not come
	Pending  float64 // seconds of prefill of the awaiting requests
	Live     float64 // context tokens of the requests in flight
	Foreign  float64 // seconds of queued work that came around this router, from scraped metrics
	Speed    float64 // actual over modelled first-token time, learned; 0 counts as 1
	Failing  bool    // it failed requests lately: last resort
	Adapter  Adapter // residency of the request's LoRA adapter
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
	Input   int    // prompt tokens; an estimate when Exact is false
	Output  int    // tokens it may generate, 0 = unknown
	Ordinal uint64 // number of the decision in this process, spreads ties
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

// Score is a candidate's result.
type Score struct {
	Cost    float64 // seconds, lower wins
	Verdict Verdict
}
