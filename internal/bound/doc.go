// Package bound limits what the outside can take of something: bytes and places in use at once,
// acts in a time, lines in a list.
//
// The invariant: nothing waits. What is beyond a limit is refused at once, and its owner says so.
//
// Units: the owner's. A Pool is safe for concurrent use, a Rate is not.
package bound
