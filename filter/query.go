package filter

import (
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/sessions"
	"warmroute/render/openai"
)

// Query is one request for the router. It reads Body only during Route.
type Query struct {
	ID       string       // Envoy's x-request-id, for explaining the decision later
	Route    openai.Route // which API
	Tenant   string       // from the trusted header, "" = shared
	Subset   []string     // endpoints the gateway allows; nil = all
	Body     []byte
	Encoded  bool          // by the headers, the body is compressed
	Slash    bool          // its path ends with one: servers redirect it, and the client sends the prompt again
	Parent   string        // its traceparent, if it is sampled and decisions are traced
	MaySplit bool          // another replica may compute the prompt
	Lengths  []openai.Span // of Body, if it is to be split: set by Route, see openai.Request.Lengths
	Bare     bool          // the headers of a hint would exceed Envoy's limits
	Pick     bool          // the gateway needs a pick even without a match to compare
	InSession

	Priority int               // above 0: never shed for load
	Dry      bool              // without effects; see Router.Explain
	Withheld decision.Withheld // why Envoy does not get the hint
}

// InSession is what a query says of its session, whose requests may be held.
type InSession struct {
	MayHold time.Duration    // how long the request may be held, 0 = not at all
	Session uint64           // a hash of the id in a header, 0 = none: the prompt tells its session
	Ticket  *sessions.Ticket // of its last decision, if that held it
	Waited  sessions.Wait    // with Ticket
}
