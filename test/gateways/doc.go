// Package gateways runs the examples for clusters against the gateways and the
// API they are written for, without a cluster: Envoy Gateway with its file
// provider and the Envoy it starts; the API server of Kubernetes and etcd side by
// side, without kubelets; Istio's control plane on that API server, and an Envoy
// that takes its configuration from it; llm-d's sidecar in front of a simulated
// replica. They are built from their Go modules by
// scripts/install-gateways.sh; `make test-gateways` runs that and the tests (build
// tag gateways).
//
// The tests have a network, a table of processes and an /etc/hosts of their own:
// Envoy Gateway's ports are fixed, replicas have the addresses of pods, and the
// names of Services are found. That takes root, on Linux.
//
// Other parts stand in for a cluster: Envoy Gateway's file provider reads no Services,
// so each becomes a Backend with the same name; pods are written to the API with
// the status ready, and simulated replicas listen on their addresses; for Istio, the
// endpoints of Services and the Service of the Gateway are written, too. Envoy is the
// upstream build, so Istio's own filters are switched off.
//
// A failed request got no answer, or another status than 200. Times
// are wall clock: they only decide that nothing hangs.
package gateways
