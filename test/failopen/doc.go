// Package failopen breaks everything around Envoy while requests flow, with the
// configuration that `extproc envoy-config` prints, and counts the requests that
// fail: the router killed, frozen, without a log, without an index, without KV
// events, with a broken configuration, and a replica killed; where prompts are
// computed on other replicas, each part killed or frozen; and of several routers
// behind two Envoys one killed, frozen or cut off from the others, whose sums of
// requests in flight must agree again.
//
// Everything is a process of its own: Envoy, extproc, simulated replicas. A
// failed request is one that got no answer, or another status than 200; an
// answer that had begun and did not end is counted as cut. Times are wall clock
// and are printed, they decide nothing but that nothing hangs.
//
// The short form runs with the other tests. `make test-failopen` is the long
// one: every fault for longer, every body mode, and the standby instance. The long
// form of the tests of several routers is a part of `make test-faults`, and
// holds them to the clock.
package failopen
