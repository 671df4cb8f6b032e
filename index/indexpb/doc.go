// Package indexpb is the gRPC contract of the index, generated from
// index.proto; `make proto` regenerates it. It has no code of its own and does
// no I/O. Package internal/indexrpc serves it.
package indexpb
