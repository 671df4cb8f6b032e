package decision

import (
	"warmroute/index"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// Ask is one request to be placed. Without Prompts, Text decides; without both, load
// alone.
type Ask struct {
	Model, Tenant string
	Subset        []string    // addresses allowed; nil = all
	Must          bool        // the caller needs a pick even without a match to compare
	Dry           bool        // decide without a trace: nothing is charged, speculated or learned
	Withheld      bool        // the request goes where Envoy sends it: nothing is charged or speculated
	Priority      int         // above 0: never shed for load
	MaySplit      bool        // another replica may compute the prompt: the filter can carry its KV cache to the first one
	NoSplit       SplitReason // why the request's form does not permit MaySplit, "" = it does, or nothing else would
	Prompts       Prompts
	// Other is a second reading of the request; nil: the request has one reading. The
	// reading with more cached tokens is placed, and stays in Prompts.
	Other      Prompts
	Least      int              // tokens of the longest prompt, or fewer; 0 = not known, or a replica may truncate it
	Answer     int              // the most tokens of an answer, 0 = as many as there is room for
	Cacheless  bool             // vLLM reads no cached block for the request
	Repeated   bool             // vLLM may look its prompts up several times
	Answers    int              // that the replica generates for each prompt; 0 = 1
	Text       []prefixhash.Key // text chain
	TextTokens int              // estimated length in tokens
	Rest       uint64           // hash of the end of the last prompt; 0: refusals of it are not remembered
	// Rekey returns the prompts for another model, with the request's salt or without it,
	// to explain a decision (Dry). It returns nil if the request has no salt to leave out;
	// a nil Rekey knows no other prompts.
	Rekey func(mv *View, salted bool) Prompts
	// Ended reports whether the work on the prompts was stopped, so that keys are
	// missing; nil: it never is.
	Ended func() bool
	// Bare: the request has no room for a header, so that none names a rank.
	Bare bool
	// Ticket is of an earlier decision on the same request; nil at first.
	Ticket *sessions.Ticket
	// MayHold: the caller can let the request wait for Decision.Held.
	MayHold bool
	// Session is a hash of the id that a header has, 0 = none: the prompt's content tells the session.
	Session uint64
}

// ended is Ended.
func (a *Ask) ended() bool { return a.Ended != nil && a.Ended() }

// Prompts computes the block keys of a request's prompts, in any scope.
type Prompts interface {
	// Len returns the number of prompts.
	Len() int
	// Tokens returns the length of prompt i in tokens.
	Tokens(i int) int
	// AppendKeys appends the keys of the blocks of prompt i that a cache can replace:
	// all full blocks, except a block with the last token, which vLLM always computes.
	AppendKeys(dst []prefixhash.Key, s *index.Scope, i int) []prefixhash.Key
	// Length returns the length of prompt i in tokens, plus 1 if its end is unknown; a
	// cache covers at most Length-1.
	Length(i int) int
	// AppendChain appends the key after each full unit of prompt i on a chain, the last
	// token included. It appends nothing if it cannot compute the chain.
	AppendChain(dst []prefixhash.Key, c index.Keying, i int) []prefixhash.Key
	// Sentinel returns the content of prompt i's last full block, and the number of full
	// blocks. The event that stores a block with this content marks the first token. In
	// scopes keyed by vLLM's hashes it returns the block's hash. The content is 0 if it
	// is not known.
	Sentinel(s *index.Scope, i int) (content uint64, blocks int)
}
