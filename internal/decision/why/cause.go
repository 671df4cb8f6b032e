package why

// Cause says what ends a candidate's match of a prompt.
type Cause string

// The causes, the most specific first: a candidate has the first that applies.
const (
	ByText      Cause = "by_text"      // the request was placed by its text
	Cacheless   Cause = "cacheless"    // vLLM reads no cache for the request
	Several     Cause = "several"      // the request has several prompts
	TooShort    Cause = "too_short"    // no full block before the last token
	CacheOff    Cause = "cache_off"    // the replica's prefix caching is off
	NoEvents    Cause = "no_events"    // nothing reports the replica's blocks: the history has taken their place
	Doubted     Cause = "doubted"      // the replica did not hit what its events promised
	NoGroup     Cause = "no_group"     // the kinds of its cache groups are not known
	Whole       Cause = "whole"        // all full blocks before the last token are cached
	InFlight    Cause = "in_flight"    // the next block is expected from a request in flight
	Group       Cause = "group"        // another cache group than full attention ends the match
	Evicted     Cause = "evicted"      // the replica removed the next block
	Refused     Cause = "refused"      // the replica's events contradict each other about the next block
	Diverges    Cause = "diverges"     // the replica has another block in the next one's place
	IndexFull   Cause = "index_full"   // the index dropped blocks of the replica
	Cleared     Cause = "cleared"      // the replica cleared its cache
	Restarted   Cause = "restarted"    // the replica's publisher restarted
	EventsLost  Cause = "events_lost"  // events were lost, or their reporter began again: all known blocks were dropped
	NeverStored Cause = "never_stored" // the replica has not reported the next block
	NotKept     Cause = "not_kept"     // a record does not tell
)

// causes has for each cause what to do about it.
var causes = []struct {
	cause Cause
	do    string
}{
	{ByText, "Configure KV events and a source of token ids."},
	{Cacheless, "Nothing: logprobs of a prompt need all of it computed."},
	{Several, "Explain each prompt in a request of its own."},
	{TooShort, "Nothing: vLLM caches full blocks only."},
	{CacheOff, "Start vLLM with --enable-prefix-caching, or SGLang without --disable-radix-cache."},
	{NoEvents, "Enable the replica's KV events, or run a sidecar for them."},
	{Doubted, "Compare the replica's hits with its events in /debug/replicas."},
	{NoGroup, "Update vLLM to 0.27 or later; if `/readyz` names an unknown kind, update the router."},
	{Whole, "Nothing: vLLM always computes the last token."},
	{InFlight, "Nothing: they count as cached when that request is served."},
	{Group, "Nothing, or let the replicas keep more of that group (prefix_cache_retention_interval)."},
	{Evicted, "Give the replicas more KV cache, or add replicas."},
	{Refused, "Look at its events in /debug/replicas: they use one hash for two blocks."},
	{Diverges, "Move what differs (a date, an id, a reordered tool) behind what prompts share."},
	{IndexFull, "Raise index.max_blocks."},
	{Cleared, "Find out who resets the prefix cache."},
	{Restarted, "Nothing: the cache fills again."},
	{EventsLost, "Give the replica a replay endpoint; look at its events in /debug/replicas."},
	{NeverStored, "Nothing if the prompt is new there; else look at its events in /debug/replicas."},
	{NotKept, "Send the request's body to extproc explain."},
}

// Causes returns every Cause.
func Causes() (all []Cause) {
	for _, c := range causes {
		all = append(all, c.cause)
	}
	return all
}

// Do returns what to do about a cause, in one sentence.
func (c Cause) Do() string {
	for i := range causes {
		if causes[i].cause == c {
			return causes[i].do
		}
	}
	return ""
}

// Place says where more of a prompt is cached than at the candidates.
type Place string

// The places.
const (
	Unsalted     Place = "without_salt"      // under the same model, without the request's cache_salt
	OtherAdapter Place = "other_adapter"     // under another adapter of the model, or under the model itself
	OtherModel   Place = "other_model"       // under another model that was loaded from the same files
	BeyondSubset Place = "beyond_the_subset" // on a replica that the gateway's subset leaves out
)
