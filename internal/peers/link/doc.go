// Package link carries the messages of a peers.Machine between routers over NATS,
// from a server that it embeds or from one that runs elsewhere.
//
// The invariants: a Link never waits for another router, and nothing that arrives
// waits for it: what it does not read in time is dropped, shows as a gap, and is
// mended by the next full message. What cannot be sent is not sent later. Whoever
// does not know the fleet's token, or has no certificate where these are
// configured, neither hears nor is heard. The build tag noembed leaves the server
// out.
//
// Run belongs to one goroutine; all other methods are safe for concurrent use.
package link
