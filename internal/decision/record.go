package decision

import (
	"strings"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/decision/why"
	"warmroute/internal/load"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// Decision is the answer to one Ask.
type Decision struct {
	Reason Reason
	Choice // without Chosen if it is withheld

	Rank        string       // data-parallel rank for the first of Chosen, "" = none
	Reservation *Reservation // of the request on the first of them; nil without a hint
	Split       *Split       // the other replica computes the prompt for the first of them; nil = the first does
	SplitReason SplitReason  // why there is no Split, "" = there is one, or requests are never split

	Model    string // Record.Model: never a string of the request (Record.Asked is)
	Tokens   int    // Record.Tokens
	Reported int    // tokens that the first one's events report as cached, also if it is doubted; none of an SGLang's upper bound
	Seq      uint64 // of the record
	Traced   bool   // the trace file has a line of that number
	Telling  bool   // the answer shows what the first one still has, or how much it can hold
	Usage    string // how Envoy is asked to read the answer's usage, "" = not at all

	// Order is the request's place in the engine's queue, the lowest first; 0 = it has none, as a
	// request that is never held.
	Order int64
	// Held is what a request waits for, with ReasonHeld: nothing is charged, and it is decided
	// again. With ReasonHeldFull it says when to come back. Else nil.
	Held *sessions.Ticket
}

// Record explains a decision later: it has names, numbers and verdicts, no text of a prompt
// and no token ids. Its buffers are reused between records.
type Record struct {
	Subject
	Reason Reason      `json:"reason"`
	Policy policy.Name `json:"policy,omitempty"`
	Prompted
	Choice
	Exceeds bool           `json:"exceeds_context,omitempty"` // the prompt is longer than the context of every ready candidate
	Input   policy.Request `json:"request"`
	// Split explains why the prompt was, or was not, computed by another replica; zero: no
	// two replicas can do so, or the request allows it not. Partners are Candidates' parts.
	Split      SplitRecord       `json:"split,omitzero"`
	Partners   []policy.Partner  `json:"partners,omitempty"`
	Candidates []CandidateRecord `json:"candidates,omitempty"` // those with the verdicts context, held and refused are the last
	// Asked is the model that the client named, if no replica could serve it: a string of
	// the request, bounded by Asked, for the admin port alone.
	Asked     string      `json:"asked_model,omitempty"`
	Why       *why.Answer `json:"why,omitempty"` // see Explain
	*Answered             // nil: Envoy has not reported the answer's usage
	// Session tells the request's session, and how it was held; nil: no requests of its kind are held.
	Session *SessionRecord `json:"session,omitempty"`

	promptMarks
}

// promptMarks tell a prompt from others, without its text.
type promptMarks struct {
	head  uint64    // the key of the first block; 0 = the prompt has no full block
	end   promptEnd // when it is refused
	reach reach     // on the replica that gets it
	typed reach     // on one that it passed over, for the refusal of a prompt of that reach

	cache *history.Cache // of that replica; nil = no history has the prompt
	hold  history.Hold   // there
	wait  time.Duration  // until its first token there
}

// Subject says which request a record is of, and when it was decided.
type Subject struct {
	Seq    uint64        `json:"seq"`
	ID     string        `json:"id,omitempty"`
	At     time.Time     `json:"at"`
	Took   time.Duration `json:"took_ns"`
	Route  string        `json:"route"`
	Model  string        `json:"model,omitempty"` // the served model's id, "" = none
	Tenant string        `json:"tenant,omitempty"`
}

// Prompted has the sizes of a request's prompts.
type Prompted struct {
	Source  string `json:"token_source,omitempty"`
	Prompts int    `json:"prompts,omitempty"`
	Tokens  int    `json:"prompt_tokens,omitempty"`
	Blocks  int    `json:"blocks,omitempty"`
	Block   int    `json:"block_size,omitempty"`
}

// Choice is where a request goes, and what is expected of it.
type Choice struct {
	Predicted int          `json:"predicted_cached_tokens"`         // tokens of the prompts that the first replica has on its GPU
	Match     policy.Match `json:"match,omitzero"`                  // what the first one has of the prompts
	Saved     float64      `json:"saved_prefill_seconds,omitempty"` // the expected prefill of the tokens that the replica which computes the prompt has cached
	Chosen    string       `json:"chosen,omitempty"`                // "ip:port[,ip:port...]", "" = no hint
	Withheld  Withheld     `json:"withheld,omitempty"`              // why Envoy did not get Chosen
}

// First returns the address that the ranked list begins with, "" = there is no hint.
func (c *Choice) First() string {
	addr, _, _ := strings.Cut(c.Chosen, ",")
	return addr
}

// Answered is what the replica that served a request counted, by its answer's usage.
type Answered struct {
	Served       string `json:"served_by"`
	ActualPrompt int    `json:"actual_prompt_tokens"`
	ActualCached *int   `json:"actual_cached_tokens,omitempty"` // nil: the answer does not say
	// FirstByte is the time from the request's first byte, as Envoy has seen it, until the first
	// of the answer's body, in seconds; 0 = not known.
	FirstByte float64 `json:"first_byte_seconds,omitempty"`
}

// learnedFrom returns how the history knows what was sent.
func (a *Ask) learnedFrom() policy.Source {
	if a.Text != nil {
		return policy.Text
	}
	return policy.History
}

// CandidateRecord is one candidate of a Record.
type CandidateRecord struct {
	Replica string           `json:"replica"`
	Rank    int              `json:"rank"`
	Events  bool             `json:"events"` // KV events or a sidecar report its blocks
	State   policy.Candidate `json:"state"`
	Score   policy.Score     `json:"score"`
	Cache   *index.Groups    `json:"cache,omitempty"` // when requested: the prompt's blocks in its cache groups
	Why     *why.End         `json:"why,omitempty"`   // what ends its match; see Record.Explain
	// Routers is the load of the other routers of the fleet there, by router; in
	// explanations of a present decision.
	Routers map[string]load.Share `json:"other_routers,omitempty"`

	block int            // tokens of its blocks; 0 = not kept
	whole int            // tokens of the full blocks of the prompts
	next  prefixhash.Key // of the first block of the prompt that it lacks; 0 = not kept
}

// Reset empties r and keeps its buffer.
func (r *Record) Reset() { *r = Record{Candidates: r.Candidates[:0], Partners: r.Partners[:0]} }
