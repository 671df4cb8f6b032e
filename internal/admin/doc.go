// Package admin serves the operational endpoints of a running binary: metrics,
// health, readiness, profiles, and any handlers that the binary adds; and the same
// readiness as a gRPC health service.
//
// Invariant: HTTP and gRPC answers come from one readiness function, called for
// each request, so they cannot disagree; and a [Gate] that has been shut never
// reports ready again. If [Access] has a token, no request without it reaches a
// handler or a profile; and no page of another site can make a browser use the
// server.
//
// Health, readiness, metrics and files that are the same everywhere need no token.
// A server holds at most 64 connections, and each has bounds in bytes and time.
// The package does not depend on routing.
package admin
