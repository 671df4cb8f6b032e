// Package envoy holds the contract with Envoy: the names of the headers
// and metadata that warmroute and Envoy share (names.go) and complete bootstrap
// configurations (WriteBootstrap, rendered from commented templates; Render, in pieces for xDS).
//
// The package knows no replica, request or decision. Every configuration it renders
// has the same properties: clients cannot set the headers that warmroute owns, not
// even while warmroute is dead; Envoy's own least_request balances requests without
// a hint; a request whose picked replica is down is retried on the next of the
// ranked list. Whether the loss of warmroute affects a request depends on the body
// mode, see Mode.
package envoy
