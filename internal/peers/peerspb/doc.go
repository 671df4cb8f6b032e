// Package peerspb is the contract between routers, generated from peers.proto by
// `make proto`.
package peerspb
