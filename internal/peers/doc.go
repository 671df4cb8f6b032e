// Package peers lets the routers of one fleet share what they have in flight and
// what they expect to be cached, over NATS.
//
// A Machine is the protocol, without a network and without a clock: it writes
// this router's messages, reads those of the others, and passes their content to
// load.Ledger, decision.Decider and policy.Book. Package link moves its messages
// over NATS; the simulator moves them on virtual time.
//
// A message holds the accounts that changed since the last one, as they are now:
// not what was added, so a message that is lost or read twice does no harm beyond
// its age. A message leaves as soon as there is a change, unless another
// has just left: what comes up then goes together. Messages are numbered within an
// epoch, which is one process's life. A gap, or an epoch whose beginning was not
// heard, has the router ask for a full message; a full message also comes every
// FullEvery. A router that is silent for Silence is gone, and its charges with it.
//
// The invariants: a decision never waits for a peer; no lock that a decision takes
// is held while a message is written or sent; clocks of machines are never
// compared; nothing that a peer sends makes memory grow without bound or stops
// the router. Tokens and text never travel.
//
// Units: nanoseconds for durations on the wire. A Machine belongs to one goroutine
// at a time; an Outbox is safe for concurrent use.
package peers
