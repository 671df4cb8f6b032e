// Package e2e holds the end-to-end tests: real Envoy, the built extproc binary
// with the race detector, and simulated replicas (internal/vllmsim).
//
// Every test states the least share of requests that must get a hint, and that
// the reason codes sum to the requests.
package e2e
