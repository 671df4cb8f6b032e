// Package admin serves what people and machines ask a running binary, apart
// from its work: metrics, health, readiness, profiles, and whatever handlers
// the binary adds; and the same readiness as a gRPC health service.
//
// Invariant: HTTP and gRPC answers come from one readiness function, asked
// anew each time, so they cannot disagree; and a [Gate] that has been shut never
// says ready again.
//
// The server is meant for loopback or a private network: it has no
// authentication, and profiles are off unless asked for. It knows nothing about
// routing.
package admin
