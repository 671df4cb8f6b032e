// Package kube finds replicas through the Kubernetes API: the ready pods of one
// InferencePool (Gateway API inference extension).
//
// The pool selects pods (a label selector, within its namespace) and their
// ports. A pod counts when its Ready condition is true and it is not being
// deleted; each of the pool's ports on it is one replica, "podIP:port".
//
// Invariants: the fleet gets a list only after both the pool and its pods were listed
// completely. The last list stays while the API server does not answer, while the pool is
// gone, and while its content is unusable; in the last two cases the pods of the previous
// selector are still watched. A pod with another name under the same address is another
// replica. [Status] shows each of these states.
//
// The address is a replica's identity, the pod's name is for people: Envoy dials
// and reports addresses, and a name is no identity either (a stateful set gives
// the same one to a new pod with an empty cache).
//
// The client is the standard library of Kubernetes; it is linked only with the
// build tag kube. Without it [New] returns [ErrNotBuilt]; options, objects and the status
// need no client.
//
// Concurrency: one Source runs at a time; Status may be read from anywhere.
package kube
