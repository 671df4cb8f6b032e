// Package certs configures the TLS of servers: a certificate from files, read
// again when they change, or a self-signed one, and optionally required client
// certificates of a known authority; and that of clients.
//
// The invariant: a server that has started keeps serving. It reports files
// that are missing, half written or do not fit together, and keeps the former
// pair; the next handshake uses a new pair, without a restart. Private keys
// are never logged. A Source is safe for concurrent use.
//
// The package does not revoke or fetch certificates.
package certs
