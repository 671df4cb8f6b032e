// Package kube finds replicas through the Kubernetes API: the ready pods of one
// InferencePool (Gateway API inference extension).
//
// The pool selects pods (a label selector, within its namespace) and their
// ports. A pod counts when its Ready condition is true and it is not being
// deleted; each of the pool's ports on it is one replica, "podIP:port".
//
// Invariants: a list is given only once both the pool and its pods have been
// listed completely. The list given last stays while the API server does not
// answer, while the pool is gone, and while the pool's content cannot be used; in
// the last two cases the pods of the previous selector are still watched. A pod
// with another name under the same address is another replica. All of that is
// visible in [Status].
//
// The address is a replica's identity, the pod's name is for people: Envoy dials
// and reports addresses, and a name is no identity either (a stateful set gives
// the same one to a new pod with an empty cache).
//
// The client is the standard library of Kubernetes; it is linked only with the
// build tag kube. Without it [New] returns [ErrNotBuilt], and everything that
// needs no client (options, what objects mean, the status) is there all the same.
//
// Concurrency: one Source runs at a time; Status may be read from anywhere.
package kube
