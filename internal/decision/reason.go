package decision

import "warmroute/render/openai"

// Reason says why a decision came out as it did. The set is closed: metrics have one
// series for each, and docs/routing.md explains every one.
type Reason string

// Reasons of decisions with a hint.
const (
	ReasonWarm    Reason = "warm"    // the best candidate holds a prefix of the prompt
	ReasonCold    Reason = "cold"    // no replica holds any; least expected time
	ReasonMoved   Reason = "moved"   // another candidate holds more, but costs more now
	ReasonGuarded Reason = "guarded" // the deepest match is beyond the load guard
	ReasonAlways  Reason = "always"  // no match to compare, picked by load because the gateway needs a pick

	// For replicas that do not report their blocks, or requests without token ids.
	ReasonLearned     Reason = "learned"      // requests with this text's beginning went there
	ReasonLearnedCold Reason = "learned_cold" // this text is new; least expected time
)

// Reasons of decisions without a hint.
const (
	ReasonNotOurs      Reason = "not_ours"        // not a route that carries a prompt
	ReasonDisabled     Reason = "disabled"        // routing is off for this model
	ReasonMode         Reason = "body_mode"       // Envoy streams the body: the headers have gone when it is complete
	ReasonStreams      Reason = "streams"         // more requests at once than are followed
	ReasonBodyCut      Reason = "body_cut"        // Envoy handed over only the first part of the body
	ReasonBodyTooLarge Reason = "body_too_large"  // beyond the configured limit
	ReasonBodySlow     Reason = "body_slow"       // the body did not arrive in time (duplex mode)
	ReasonUnfinished   Reason = "unfinished"      // the request ended before its body was complete
	ReasonUnknownModel Reason = "unknown_model"   // no replica serves it
	ReasonNotReady     Reason = "not_ready"       // replicas serve it, none is ready
	ReasonEmptySubset  Reason = "empty_subset"    // the gateway's subset leaves no candidate
	ReasonNoTokens     Reason = "no_tokens"       // the prompt's token ids cannot be found out
	ReasonBudget       Reason = "budget"          // token ids did not come in time
	ReasonRenderSlow   Reason = "render_too_slow" // no replica can return them in time, so none was called
	ReasonBusy         Reason = "busy"            // too many bodies are worked on at once
	ReasonNoMatch      Reason = "no_match"        // nothing cached anywhere and cold hints are off
	ReasonAllGuarded   Reason = "all_guarded"     // every candidate is beyond the guard
	ReasonSaturated    Reason = "saturated"       // every candidate is beyond the configured time to first token
	ReasonPanic        Reason = "panic"           // a defect of ours, contained
)

// Reasons returns every Reason: the filter's own and the reasons why a body cannot be
// read (render/openai), which share one name space.
func Reasons() []Reason {
	all := []Reason{
		ReasonWarm, ReasonCold, ReasonMoved, ReasonGuarded, ReasonAlways, ReasonLearned, ReasonLearnedCold,
		ReasonNotOurs, ReasonDisabled, ReasonMode, ReasonStreams, ReasonBodyCut, ReasonBodyTooLarge, ReasonBodySlow,
		ReasonUnfinished, ReasonUnknownModel, ReasonNotReady, ReasonEmptySubset, ReasonNoTokens, ReasonBudget, ReasonRenderSlow, ReasonBusy, ReasonNoMatch,
		ReasonAllGuarded, ReasonSaturated, ReasonPanic,
	}
	for _, r := range openai.Reasons {
		all = append(all, Reason(r))
	}
	return all
}

// Codes that clients get in place of a Reason that depends on cached blocks.
const (
	ForClientsRouted    = "routed"
	ForClientsNotRouted = "not_routed"
)

// ForClients returns the code that a client may see: it reveals nothing of the blocks
// of replicas, which other clients' requests decide, and nothing of their load.
func (r Reason) ForClients() string {
	switch {
	case r.Hint():
		return ForClientsRouted
	case r == ReasonNoMatch, r == ReasonAllGuarded:
		return ForClientsNotRouted
	}
	return string(r)
}

// Hint reports whether decisions of this reason name a replica.
func (r Reason) Hint() bool {
	switch r {
	case ReasonWarm, ReasonCold, ReasonMoved, ReasonGuarded, ReasonAlways, ReasonLearned, ReasonLearnedCold:
		return true
	}
	return false
}
