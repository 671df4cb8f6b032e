// Package xds sends Envoys the fleet: listener, routes, clusters and endpoints over xDS
// (go-control-plane's server: ADS, incremental and state of the world), and as files of the
// same for an Envoy that starts while the router is dead.
//
// Invariants: nothing is published before every source of replicas has given a list and
// every replica has answered or failed once, or the last known state was read back, so that
// no endpoint disappears because a router has just started. New clusters are published
// before the routes that lead there, and old ones stay until no route does. The published
// state is the content of envoy.WriteBootstrap, rendered from the same templates.
//
// [Publisher.Snapshot] is the fleet as far as Envoys have acknowledged it: a replica that
// some connected Envoy has not acknowledged is not ready there, so it is not named. If no
// Envoy is connected (a gateway owns its endpoints, or files are used) no replica is held
// back.
//
// Versions are hashes of the content, per resource type. Run is one goroutine; gRPC's
// goroutines call the acknowledgements; everything else may be called from any goroutine.
package xds
