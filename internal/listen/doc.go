// Package listen opens the ports of a binary.
//
// Invariant: a port holds at most the connections that its caller names; further
// ones wait in the kernel, where they take none of the process's file descriptors.
package listen
