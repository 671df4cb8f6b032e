// Package certs gives servers their TLS: a certificate from files, read again
// when they change, or a self-signed one, and optionally the demand that
// clients show a certificate of a known authority.
//
// The invariant: a server that has started keeps serving. Files that are
// missing, half written or do not fit together are reported and the pair used
// before stays; a new pair is used by the next handshake, without a restart.
// Private keys are never logged. A Source is safe for concurrent use.
//
// It revokes nothing and fetches nothing.
package certs
