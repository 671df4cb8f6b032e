package decision

import (
	"cmp"

	"warmroute/render/openai"
)

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
	ReasonLearned     Reason = "learned"      // requests with this beginning went there
	ReasonLearnedCold Reason = "learned_cold" // no request with this beginning went anywhere; least expected time
)

// Reasons of decisions without a hint.
const (
	ReasonNotOurs      Reason = "not_ours"        // not a route that carries a prompt
	ReasonDisabled     Reason = "disabled"        // routing is off for this model
	ReasonNoHeaders    Reason = "no_headers"      // Envoy sends no headers, or not the method and path
	ReasonMode         Reason = "body_mode"       // Envoy streams the body: the headers have gone when it is complete
	ReasonStreams      Reason = "streams"         // more requests at once than are followed
	ReasonBodyCut      Reason = "body_cut"        // Envoy handed over only the first part of the body
	ReasonBodyTooLarge Reason = "body_too_large"  // beyond the configured limit
	ReasonBodySlow     Reason = "body_slow"       // the body did not arrive in time (duplex mode)
	ReasonEncoded      Reason = "encoded_body"    // its content-encoding names a compression, and it is not JSON
	ReasonUnfinished   Reason = "unfinished"      // the request ended before its body was complete
	ReasonNoModel      Reason = "no_model"        // it names none, and replicas serve several or none is known
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
	ReasonHeld         Reason = "held"            // it waits until the caches of live sessions have room for it, or are paid for
	ReasonHeldFull     Reason = "held_full"       // it would be held, and as many are held as may be
	ReasonPanic        Reason = "panic"           // a defect of ours, contained
)

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
	switch r.Class() {
	case ClassWarm, ClassMoved, ClassCold:
		return true
	}
	return false
}

// meaning is what a Reason says to an operator.
type meaning struct {
	reason Reason
	class  Class
	do     string // what to do about it, in one sentence
}

// reasons has every Reason: the filter's own, and the reasons why a body cannot be read
// (render/openai), which share one name space.
var reasons = []meaning{
	{ReasonWarm, ClassWarm, "Nothing."},
	{ReasonCold, ClassCold, "Nothing for a new prompt; else see what ends each candidate's match."},
	{ReasonMoved, ClassMoved, "Nothing."},
	{ReasonGuarded, ClassMoved, "Add replicas, if it persists."},
	{ReasonAlways, ClassCold, "Check the source of token ids."},
	{ReasonLearned, ClassWarm, "Configure KV events and token ids for exact matches."},
	{ReasonLearnedCold, ClassCold, "Configure KV events and token ids for exact matches."},
	{ReasonNotOurs, ClassPassed, "Nothing."},
	{ReasonDisabled, ClassPassed, "Set another `route_policy`."},
	{ReasonNoHeaders, ClassFailed, "Set `request_header_mode: SEND` in Envoy, and let `forward_rules` permit `:method` and `:path`."},
	{ReasonMode, ClassFailed, "Set `request_body_mode: BUFFERED` in Envoy."},
	{ReasonStreams, ClassFailed, "Add routers."},
	{ReasonBodyCut, ClassFailed, "Increase Envoy's buffer limit."},
	{ReasonBodyTooLarge, ClassFailed, "Increase `filter.max_body`, if it is meant."},
	{ReasonBodySlow, ClassFailed, "Check for slow clients."},
	{ReasonEncoded, ClassFailed, "Send it uncompressed, or put Envoy's decompressor filter before ext_proc."},
	{ReasonUnfinished, ClassPassed, "Nothing, if it is rare; else look at `warmroute_decision_seconds`."},
	{ReasonNoModel, ClassFailed, "Fix the client: name a model."},
	{ReasonUnknownModel, ClassFailed, "Check the model's name, and in `/debug/replicas` whether a replica has not answered yet."},
	{ReasonNotReady, ClassFailed, "See in `/debug/replicas` why."},
	{ReasonEmptySubset, ClassFailed, "Check the gateway's routes."},
	{ReasonNoTokens, ClassFailed, "Configure the model under `tokens:`."},
	{ReasonBudget, ClassFailed, "Let the router compute token ids in process."},
	{ReasonRenderSlow, ClassFailed, "Let the router find the model's tokenizer."},
	{ReasonBusy, ClassFailed, "Add cores, memory or routers."},
	{ReasonNoMatch, ClassPassed, "Nothing, or set `hint_when_cold`."},
	{ReasonAllGuarded, ClassFailed, "Add replicas."},
	{ReasonSaturated, ClassFailed, "Add replicas."},
	{ReasonHeld, ClassFailed, "Nothing, if waits are short; else add replicas."},
	{ReasonHeldFull, ClassFailed, "Add replicas."},
	{ReasonPanic, ClassFailed, "See the log, and report it."},
	{Reason(openai.UnreadableJSON), ClassFailed, "Fix the client: send one JSON value."},
	{Reason(openai.TooDeep), ClassFailed, "Fix the client: nest less."},
	{Reason(openai.InvalidUTF8), ClassFailed, "Fix the client: send UTF-8."},
	{Reason(openai.LoneSurrogate), ClassFailed, "Fix the client: send whole surrogate pairs."},
	{Reason(openai.DuplicateKey), ClassFailed, "Fix the client: send each key once."},
	{Reason(openai.RepeatedField), ClassFailed, "Fix the client: send each field once."},
	{Reason(openai.TooWide), ClassFailed, "Fix the client: send fewer keys, prompts or values."},
	{Reason(openai.NotObject), ClassFailed, "Fix the client: send a JSON object."},
	{Reason(openai.BadModel), ClassFailed, "Fix the client: send the model's name as a string."},
	{Reason(openai.NoPrompt), ClassFailed, "Fix the client: send messages, input or a prompt."},
	{Reason(openai.BadPrompt), ClassFailed, "Fix the client: send messages, input or prompt in the API's type."},
	{Reason(openai.BadCacheSalt), ClassFailed, "Fix the client: send a string that is not empty, or no `cache_salt`."},
}

// Reasons returns every Reason.
func Reasons() (all []Reason) {
	for i := range reasons {
		all = append(all, reasons[i].reason)
	}
	return all
}

// byReason has the reasons by their names: each decision is counted by its class.
var byReason = func() map[Reason]meaning {
	all := map[Reason]meaning{}
	for _, m := range reasons {
		all[m.reason] = m
	}
	return all
}()

// Class returns the class of decisions of this reason whose hint was not withheld.
func (r Reason) Class() Class { return cmp.Or(byReason[r].class, ClassFailed) }

// Do returns what to do about decisions of this reason, in one sentence.
func (r Reason) Do() string { return byReason[r].do }
