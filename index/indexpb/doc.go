// Package indexpb is the gRPC contract of the index, generated from
// index.proto; `make proto` regenerates it. It holds no code of its own, does
// no I/O, and says nothing about who serves it (package internal/indexrpc).
package indexpb
