// Package link carries the messages of a peers.Machine between routers over NATS,
// from a server that it embeds or from one that runs elsewhere.
//
// The invariants: a Link never waits for another router, and no sender waits for
// it: messages that it does not read in time are dropped, show as a gap, and are
// repaired by the next full message. Messages that cannot be sent are not sent
// later. A client without the fleet's token, or without a certificate where these
// are configured, neither receives nor sends. The build tag noembed leaves the
// server out.
//
// Run belongs to one goroutine; all other methods are safe for concurrent use.
package link
