// Package testenv starts the real parts that end-to-end tests stand on: Envoy,
// vLLM and warmroute's own binaries. Every process it starts is stopped, with
// its children, when the test or the program that asked for it ends.
//
// Nothing here is linked into a shipped binary.
package testenv
