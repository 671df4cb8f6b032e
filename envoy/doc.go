// Package envoy has everything that Envoy must know: the names of the headers
// and metadata warmroute and Envoy share (names.go) and complete bootstrap
// configurations (Bootstrap, rendered from one commented template).
//
// The package imports nothing of warmroute. Every configuration it renders
// keeps the same promises: clients cannot set the headers warmroute owns, not
// even while warmroute is dead; a request without a hint is balanced by Envoy's
// own least_request; a picked replica that is down is retried on the next of
// the ranked list. Whether losing warmroute costs a request anything depends on
// the body mode, see Mode.
package envoy
