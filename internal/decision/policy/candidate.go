package policy

// Candidate is one holder with its match and its load.
type Candidate struct {
	Hash  uint64 `json:"hash,string"` // identity, spreads ties; equal for the same replica and rank in every process
	Match Match  `json:"match"`
	Load
	CacheWeight float64   `json:"cache_weight"`               // blocks placed there lately, weighted by age
	Space       float64   `json:"space,omitempty"`            // share of the evicted tokens expected to be used again, beyond the least share of the candidates
	Room        float64   `json:"room_seconds,omitempty"`     // s until answers that run have left the room that the request needs
	Crowding    float64   `json:"crowding_seconds,omitempty"` // of these, s for the request's own tokens: so much longer later ones wait
	Stagger     float64   `json:"stagger_tokens,omitempty"`   // tokens beside Live, below 0 on the holders that shall fill up first
	Adapter     Residency `json:"adapter"`                    // residency of the request's LoRA adapter
}

// Load is what a candidate has to do: for this router, for others, and for clients that came
// around them.
type Load struct {
	InFlight int     `json:"in_flight"`                 // requests of the routers
	Awaiting int     `json:"awaiting"`                  // of these, requests whose first token has not come
	Apart    int     `json:"apart,omitempty"`           // of this router's, requests that another replica answers, or whose prompt another one still computes
	Pending  float64 `json:"pending_seconds"`           // s of prefill of the awaiting requests
	Foreign  float64 `json:"foreign_seconds"`           // s of queued prefill that came around the routers, from scraped metrics
	Loading  float64 `json:"loading_seconds,omitempty"` // s until the loads of the requests ahead are done
	Live     float64 `json:"live_tokens"`               // context tokens of the requests in flight, with the ones in scraped metrics, and their answers as far as these have grown
	Recent   float64 `json:"recent_seconds,omitempty"`  // s of prefill that this router sent there lately, weighted by age
	// RecentRequests is the number of requests with which Recent was sent, weighted alike.
	RecentRequests float64 `json:"recent_requests,omitempty"`
	Speed          float64 `json:"speed"`   // actual over modelled first-token time, learned; 0 = not known, counts as 1
	Failing        bool    `json:"failing"` // it failed requests lately: last resort
}

// Residency says whether a candidate is known to lack the request's LoRA adapter.
type Residency uint8

const (
	AdapterReady   Residency = 0 // loaded as far as is known, or the request has none
	AdapterEvicted Residency = 2 // not loaded, loading it evicts another; 1 was of former versions
)

// Request is the part of a request that a policy reads.
type Request struct {
	Input     int    `json:"input_tokens"`               // prompt tokens; an estimate without token ids
	Matchable int    `json:"matchable_tokens,omitempty"` // of these, tokens a match can cover; 0 = all
	Ordinal   uint64 `json:"ordinal"`                    // number of the decision in this process, spreads ties
	// Reuse is how often a stored token is expected to be used again; 0 = not known.
	Reuse float64 `json:"reuse,omitempty"`
	// Unreported is the prefill in seconds that other routers have probably sent
	// since their last messages.
	Unreported float64 `json:"unheard_seconds,omitempty"`
}

// Verdict is the result of the guards for a candidate.
type Verdict uint8

const (
	Ranked      Verdict = iota // eligible, costed
	LoadGuarded                // in flight beyond the guard
	Failing                    // it failed requests lately
	PrefillOnly                // it computes prompts for others, and answers none
	Context                    // its context is too short for the request, so it was not scored
	Held                       // it is asleep or stalled, so it was not scored
	Refused                    // it refused the prompt lately, so it was not scored
)

var verdictNames = [...]string{"ranked", "load_guarded", "failing", "prefill_only", "context", "held", "refused"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown"
}

// MarshalText writes the verdict's name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a verdict's name.
func (v *Verdict) UnmarshalText(text []byte) error { return named(v, verdictNames[:], text) }

// Score is a candidate's result.
type Score struct {
	Cost    float64 `json:"cost"` // ttft: seconds; filter-then-score: below 0 for a hot match, else the cache weight. Lower wins
	Verdict Verdict `json:"verdict"`
}
