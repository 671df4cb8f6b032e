// Package hostile attacks a real router behind a real Envoy, as a client, a replica,
// a model's author or a neighbour could, and holds the router to a bound.
//
// The invariant: no bound is in seconds. An attack costs at most so many times as
// much as an ordinary request or replica of the same size in the same run, or so many
// counted bytes, log lines, connections or steps. A machine that is busy with other
// work changes neither side of such a bound.
//
// Each test starts processes of its own (site). The tests of a group of outsiders are in
// one file: requests_test.go has those of clients. They take minutes of CPU and run by
// `make test-hostile`, not by `make test`.
package hostile
