// Package pressure counts, per model, how often a load guard sent a request
// away from the replica that had its prefix: a sign that the model wants more
// replicas, made for an autoscaler.
//
// The invariant: reading drains nothing. An occurrence counts for Window after
// it happened, to within a sixtieth of it, or until its model is Reset by
// whoever has acted on it. Nothing is kept of models that were never raised.
//
// Units: occurrences, on the clock whose time the caller passes, which may go
// backwards a little. All methods are safe for concurrent use; raising a model
// that was raised before takes no lock and allocates nothing.
package pressure
