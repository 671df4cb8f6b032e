package why

import (
	"fmt"
	"strings"
	"time"
)

// End says what ends the match of one candidate.
type End struct {
	Cause  Cause     `json:"cause"`
	Text   string    `json:"text"`                            // one line for people: Say writes it
	Cached int       `json:"cached_tokens"`                   // tokens that the replica has reported, from the prompt's start
	Coming int       `json:"in_flight_tokens,omitempty"`      // further ones that requests in flight will leave there
	Lower  int       `json:"lower_tier_tokens,omitempty"`     // further ones in CPU memory and storage
	Draft  int       `json:"draft_tokens,omitempty"`          // cached ones that a draft model makes vLLM compute again
	Left   int       `json:"uncached_tokens"`                 // the tokens behind
	Block  int       `json:"block_size,omitempty"`            // tokens of a block
	At     time.Time `json:"at,omitzero"`                     // of Evicted, Cleared, Restarted, EventsLost
	Since  time.Time `json:"followed_since,omitzero"`         // of NeverStored: the replica has been followed since
	Known  time.Time `json:"removals_since,omitzero"`         // of NeverStored: earlier removals are forgotten
	Kind   string    `json:"group_kind,omitempty"`            // of Group: the kind of the group that ends the match
	Full   int       `json:"full_attention_tokens,omitempty"` // of Group: what full attention has
}

// Elsewhere says that more of a prompt is cached where the request does not look.
type Elsewhere struct {
	Place Place  `json:"place"`
	Model string `json:"model,omitempty"` // of OtherAdapter and OtherModel: the served model's id
	More  int    `json:"more_tokens"`     // than the longest match of a candidate
}

// Replica is a replica that a request could not use, with the cause.
type Replica struct {
	Addr string `json:"replica"`
	Why  string `json:"why"`
}

// Answer says why a request was not warmer.
type Answer struct {
	Text      string      `json:"text"` // one line for people
	Do        string      `json:"do"`   // what to do, by the reason code
	Elsewhere []Elsewhere `json:"elsewhere,omitempty"`
	Untried   int         `json:"untried,omitempty"` // adapters and models beyond the bound or the time
	NotReady  []Replica   `json:"not_ready,omitempty"`
	Served    []string    `json:"served_models,omitempty"` // instead of an unknown one
}

// Say writes the line of an end at a time.
func (e *End) Say(now time.Time) {
	var b strings.Builder
	has := "has nothing of it"
	if e.Cached > 0 {
		has = "has " + tokens(e.Cached)
	}
	next := "the first block"
	if e.Cached > 0 {
		next = "the next block"
	}
	switch e.Cause {
	case ByText:
		fmt.Fprintf(&b, "%s, by the texts that were sent there", has)
	case Cacheless:
		b.WriteString("reads no cache for this request")
	case Several:
		fmt.Fprintf(&b, "has %s of all prompts together; blocks are explained for one prompt alone", tokens(e.Cached))
	case TooShort:
		fmt.Fprintf(&b, "cannot have any of it: the prompt has no full block of %d tokens before its last token", e.Block)
	case CacheOff:
		fmt.Fprintf(&b, "%s: its prefix caching is off", has)
	case NoEvents:
		fmt.Fprintf(&b, "%s, by the token ids that were sent there: no KV events and no sidecar report its blocks", has)
	case Doubted:
		b.WriteString("counts as holding nothing: it did not hit what its events promised")
	case NoGroup:
		b.WriteString("counts as holding nothing: its events do not name the kinds of its cache groups, or name one that is not known here")
	case Whole:
		fmt.Fprintf(&b, "has the whole prompt but its last %s", tokens(e.Left))
	case InFlight:
		fmt.Fprintf(&b, "%s; a request in flight will leave %s more, their event has not come", has, tokens(e.Coming))
	case Group:
		fmt.Fprintf(&b, "%s that all cache groups allow; full attention has %d, but its %s group ends the hit", has, e.Full, e.Kind)
	case Evicted:
		fmt.Fprintf(&b, "%s; %s was evicted %s", has, next, when(e.At, now))
	case Diverges:
		fmt.Fprintf(&b, "%s; other prompts go on there, this one differs from them within the next %d tokens", has, e.Block)
	case Refused:
		fmt.Fprintf(&b, "%s; it has reported %s by a hash that it also uses for another block", has, next)
	case IndexFull:
		fmt.Fprintf(&b, "%s; the index dropped blocks of this replica to stay within its bounds", has)
	case Cleared:
		fmt.Fprintf(&b, "%s; its cache was cleared %s, and %s has not been stored since", has, when(e.At, now), next)
	case Restarted:
		fmt.Fprintf(&b, "%s; it restarted %s, and %s has not been stored since", has, when(e.At, now), next)
	case EventsLost:
		fmt.Fprintf(&b, "%s; all known blocks were dropped %s, because events were lost or their reporter began again, and %s has not been reported since", has, when(e.At, now), next)
	case NeverStored:
		e.sayNever(&b, has, next, now)
	case NotKept:
		fmt.Fprintf(&b, "%s; its record does not tell why the rest was not there", has)
	}
	if e.Lower > 0 {
		fmt.Fprintf(&b, "; %s more are in CPU memory or storage", tokens(e.Lower))
	}
	if e.Draft > 0 {
		fmt.Fprintf(&b, "; %s more are cached, but computed again for a draft model", tokens(e.Draft))
	}
	e.Text = b.String()
}

func (e *End) sayNever(b *strings.Builder, has, next string, now time.Time) {
	switch {
	case e.Since.IsZero():
		fmt.Fprintf(b, "%s; it has reported no block yet", has)
	default:
		fmt.Fprintf(b, "%s; it has not stored %s since it is followed, %s", has, next, when(e.Since, now))
	}
	if !e.Known.IsZero() {
		fmt.Fprintf(b, ", or removed it before %s", clock(e.Known))
	}
}

// Say returns the line of a place.
func (e *Elsewhere) Say() string {
	switch e.Place {
	case Unsalted:
		return tokens(e.More) + " more without the cache_salt"
	case OtherAdapter:
		return fmt.Sprintf("%s more under %q, the same model with another adapter or none", tokens(e.More), e.Model)
	case OtherModel:
		return fmt.Sprintf("%s more under the model %q, loaded from the same files", tokens(e.More), e.Model)
	}
	return tokens(e.More) + " more on a replica outside the gateway's subset"
}

func tokens(n int) string {
	if n == 1 {
		return "1 token"
	}
	return fmt.Sprintf("%d tokens", n)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// when returns a time of day, and how long it was before now.
func when(t, now time.Time) string {
	ago := now.Sub(t).Round(time.Second)
	if ago < time.Second {
		return "at " + clock(t) + " (just now)"
	}
	return fmt.Sprintf("at %s (%s before)", clock(t), ago)
}
