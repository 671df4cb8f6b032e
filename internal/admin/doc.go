// Package admin serves the operational endpoints of a running binary: metrics,
// health, readiness, profiles, and any handlers that the binary adds; and the
// same readiness as a gRPC health service.
//
// Invariant: HTTP and gRPC answers come from one readiness function, called
// for each request, so they cannot disagree; and a [Gate] that has been shut never
// reports ready again.
//
// The server is meant for loopback or a private network: it has no
// authentication, and profiles are off by default. It does not depend on
// routing.
package admin
