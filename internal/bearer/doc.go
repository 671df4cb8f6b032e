// Package bearer has the token with which a client proves its right, over HTTP and
// gRPC alike: "authorization: Bearer TOKEN".
//
// Invariant: a file that cannot be read again, or is empty, leaves the former token
// in force; a token is compared in constant time and is part of no error.
//
// A [Token] is safe for concurrent use. A renewed file counts after at most 10 s.
package bearer
