// Package peers shares between the routers of one fleet, over NATS, their requests in
// flight, the blocks that they expect to be cached, and the sessions at work.
//
// A Machine is the protocol, without a network and without a clock: it writes this router's
// messages, reads the messages of the others, and passes their content to load.Ledger,
// decision.Decider and policy.Book. Package link moves its messages over NATS; the
// simulator moves them on virtual time.
//
// A message holds the current values of the accounts that changed since the last one, not
// the differences, so a lost or repeated message does no harm beyond its age. A message is
// sent as soon as there is a change, unless another has just been sent: later changes then
// share a message. Messages are numbered within an epoch, which is one process's life.
// After a gap, or in an epoch whose beginning was not received, the router requests a full
// message, and the sessions of the other count as answered; a full message is also sent every FullEvery. A router that is silent for Silence
// is gone, and its charges are removed.
//
// The invariants: a decision never waits for a peer; no lock that a decision takes is held
// while a message is written or sent; clocks of machines are compared for the order of
// settings alone, and no version of settings wins for ever; no message of a peer makes
// memory grow without bound or stops the router. Tokens and text never travel.
//
// Units: nanoseconds for durations on the wire. A Machine belongs to one goroutine at a
// time; an Outbox is safe for concurrent use.
package peers
