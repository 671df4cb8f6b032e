package decision

import (
	"warmroute/index"
	"warmroute/prefixhash"
)

// Ask is one request to be placed. Without Prompts it is placed by Text where
// that is set, else by load alone.
type Ask struct {
	Model, Tenant string
	Subset        []string // addresses allowed; nil = all
	Must          bool     // the caller needs a pick even without a match to compare
	Dry           bool     // only what would be decided: nothing is charged, speculated or learned
	Priority      int      // above 0: never shed for load
	Prompts       Prompts
	// Other, if there is one, is what Prompts may be instead: of the two, the one that
	// more is cached of is placed, and stays in Prompts.
	Other      Prompts
	Cacheless  bool             // no cache is read for it
	Text       []prefixhash.Key // text chain
	TextTokens int              // estimated length in tokens
}

// Prompts are the block keys of a request's prompts, for whatever scope they
// are wanted.
type Prompts interface {
	// Len is the number of prompts.
	Len() int
	// Tokens is the length of prompt i in tokens.
	Tokens(i int) int
	// AppendKeys appends the keys of those blocks of prompt i that a cache can
	// spare it from computing: all full ones, but never the last token.
	AppendKeys(dst []prefixhash.Key, s *index.Scope, i int) []prefixhash.Key
	// Length is how many tokens prompt i has at least one more than which a cache
	// can spare it: its length, and one more where its end is not known.
	Length(i int) int
	// AppendChain appends the keys after each full unit of prompt i on a chain,
	// its last token included; nothing where the chain cannot be computed.
	AppendChain(dst []prefixhash.Key, c index.Chain, i int) []prefixhash.Key
	// Sentinel returns what identifies prompt i's last full block in the event that
	// stores it (its content, or its engine hash where that is the key), and
	// the number of full blocks; 0 when that cannot be known.
	Sentinel(s *index.Scope, i int) (content uint64, blocks int)
}
