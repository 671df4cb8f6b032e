// Package e2e holds the end-to-end tests: real Envoy, the built extproc binary
// with the race detector, and simulated replicas (lab/vllmsim).
//
// The torture suite (torture_test.go) sends every shape of request in every body
// mode, by HTTP/1.1 and HTTP/2, to upstreams that keep the bytes they get;
// gateway_test.go, chain_test.go and tls_test.go change the Envoy around us as
// gateways do.
//
// Every test states the least share of requests that must get a hint, and that
// the reason codes sum to the requests.
//
// Each test has replicas, router, Envoy, ports and folders of its own, and runs beside
// others (t.Parallel): most of its time it waits for its programs. Tests about bursts and
// about short waits run alone.
package e2e
