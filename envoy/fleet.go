package envoy

import (
	"slices"
)

// AllReplicas is the cluster of every replica: the only cluster of a fleet with
// one model. Otherwise it serves requests that name no model, or a model without
// a replica.
const AllReplicas = "replicas"

// Unread is the cluster of the replicas whose models nobody knows yet.
const Unread = "unread"

// Fleet has the replicas and their models in the form that Envoy receives.
type Fleet struct {
	Replicas []Endpoint // all of them
	Groups   []Group    // by the models that they serve; none if all serve the same
	// ReadsModel makes Envoy read the model of every body although there are no
	// groups: a change of the listener costs more than reading bodies.
	ReadsModel bool
	// Unread lists the replicas whose models are not known yet, and the models of all other
	// replicas: requests for further models go to the former. Without such replicas there is
	// no such cluster.
	Unread  Group
	Listing string // the answer to GET /v1/models; "" = any replica's
}

// Group is the replicas that serve some model names, and a cluster of that name.
type Group struct {
	Name     string
	Models   []string // the values of "model" in requests
	Replicas []Endpoint
}

// Endpoint is a replica in a cluster.
type Endpoint struct {
	Addr string // host:port
	Down bool   // it does not answer: used only if no other of the cluster does
}

// Serving returns a fleet of replicas that all serve the same.
func Serving(addrs ...string) Fleet {
	var f Fleet
	for _, a := range addrs {
		f.Replicas = append(f.Replicas, Endpoint{Addr: a})
	}
	return f
}

// Equal reports whether two fleets result in the same configuration of Envoy.
func (f Fleet) Equal(g Fleet) bool {
	return f.SameClusters(g) && slices.Equal(f.Replicas, g.Replicas) && slices.Equal(f.Unread.Replicas, g.Unread.Replicas) &&
		slices.EqualFunc(f.Groups, g.Groups, func(a, b Group) bool { return slices.Equal(a.Replicas, b.Replicas) })
}

// SameClusters reports whether two fleets differ in endpoints at most.
func (f Fleet) SameClusters(g Fleet) bool {
	return f.Listing == g.Listing && f.ReadsModel == g.ReadsModel && slices.Equal(f.Unread.Models, g.Unread.Models) &&
		slices.EqualFunc(f.Groups, g.Groups, func(a, b Group) bool { return a.Name == b.Name && slices.Equal(a.Models, b.Models) })
}

// all returns the clusters of f, first the cluster of all replicas.
func (f Fleet) all() []Group {
	all := append([]Group{{Name: AllReplicas, Replicas: f.Replicas}}, f.Groups...)
	if len(f.Unread.Replicas) > 0 {
		all = append(all, f.Unread)
	}
	return all
}
