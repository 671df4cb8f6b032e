// Package extprocwire is gRPC's protobuf codec with a faster way for the usual
// messages of ext_proc streams.
//
// The invariant: it reads and writes the same as the protobuf library. A message
// with anything unusual in it goes to the library.
//
// A ProcessingRequest that is received into an Incoming is read without reflection,
// into one copy of its bytes, which its strings and body share. The answers of every
// request are written without reflection, body bytes without a copy.
//
// Units: bytes. A Codec is safe for concurrent use; an Incoming has one user at a time. A body
// given to Recycle must not be used any more.
package extprocwire
