package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"warmroute/filter"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/kube"
)

// mostListed bounds the replicas whose parts check prints.
const mostListed = 64

// mostPairNotes bounds the models that notes about pairs name.
const mostPairNotes = 8

// pairNotes says which part each replica of the file takes in prefill and decode on two
// replicas, and why no request will ever be split; "" without a mode or a role.
func (c Config) pairNotes() string {
	mode, roles := c.PrefillDecode.Mode, false
	var listed []*fleet.Replica
	var named strings.Builder
	name := func(who string, o *fleet.ReplicaOptions, more string) {
		roles = roles || o.Role != ""
		role, _ := fleet.ParseRole(o.Role) // Validate has read it
		listed = append(listed, &fleet.Replica{Addr: who, Configured: fleet.Configured{Role: role}, Reported: fleet.Reported{Transfer: fleet.Transfer{Connector: o.KVConnector}}})
		if len(listed) <= mostListed {
			fmt.Fprintf(&named, "#   %s: role %s%s, connector %s\n", who, role, more, cmp.Or(o.KVConnector, "as the replica reports"))
		}
	}
	for i := range c.Fleet.DNS {
		name("those of "+c.Fleet.DNS[i].Name, &c.Fleet.DNS[i].Replica, "")
	}
	if c.Kubernetes.Enabled() {
		name("those of the pool", &c.Kubernetes.Replica, " unless its label "+kube.RoleLabel+" says another")
	}
	listed = nil // found replicas have no addresses yet
	for i := range c.Fleet.Replicas {
		name(c.Fleet.Replicas[i].Address, &c.Fleet.Replicas[i], "")
	}
	if mode == filter.TransportOff && !roles {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# prefill and decode: mode %s\n%s", mode, named.String())
	switch why := c.neverPaired(listed); {
	case mode == filter.TransportOff:
		fmt.Fprintln(&out, "# prefill and decode: no request is split, because prefill_decode.mode is off")
	case c.Policy.RoutePolicy != nil && *c.Policy.RoutePolicy != policy.NameTTFT:
		fmt.Fprintf(&out, "# prefill and decode: no request is split, because policy.route_policy is %s and ttft alone prices splits\n", *c.Policy.RoutePolicy)
	case why != "":
		fmt.Fprintf(&out, "# prefill and decode: no request is split, because %s\n", why)
	}
	return out.String()
}

// neverPaired says why no two replicas of the file can pair, "" if they may. What the
// replicas report themselves is not known.
func (c Config) neverPaired(listed []*fleet.Replica) string {
	if len(listed) == 0 || len(c.Fleet.DNS) > 0 || c.Kubernetes.Enabled() {
		return ""
	}
	named := slices.DeleteFunc(slices.Clone(listed), func(r *fleet.Replica) bool { return r.Transfer.Connector == fleet.NoConnector })
	for _, r := range named {
		if r.Transfer.Connector == "" { // it may have any
			return parts(named)
		}
	}
	return whyNoPair(c.PrefillDecode.Mode, named)
}

// parts says which part no replica takes, "" if both are taken.
func parts(replicas []*fleet.Replica) string {
	all := func(role fleet.Role) bool {
		return !slices.ContainsFunc(replicas, func(r *fleet.Replica) bool { return r.Role != role })
	}
	switch {
	case len(replicas) == 0:
		return "no replica has a known KV connector"
	case len(replicas) == 1:
		return fmt.Sprintf("%s is the only replica with a KV connector", replicas[0].Addr)
	case all(fleet.RoleDecode):
		return "all replicas with a KV connector have the role decode, so that none computes prompts for others"
	case all(fleet.RolePrefill):
		return "all replicas with a KV connector have the role prefill, so that none takes their caches"
	}
	return ""
}

// whyNoPair says why no two replicas of one model can pair in a mode, "" if two can. Its time
// grows with their number.
func whyNoPair(mode filter.Transport, replicas []*fleet.Replica) string {
	able := slices.DeleteFunc(slices.Clone(replicas), func(r *fleet.Replica) bool { return r.Transfer.Connector == "" })
	if why := parts(able); why != "" {
		return why
	}
	type kind struct {
		connector, version string
		block              int
	}
	byKind := map[kind][]*fleet.Replica{}
	for _, r := range able {
		k := kind{r.Transfer.Connector, r.Version, r.BlockSize}
		byKind[k] = append(byKind[k], r)
	}
	other := ""
	for _, k := range slices.SortedFunc(maps.Keys(byKind), func(a, b kind) int { return cmp.Compare(a.connector, b.connector) }) {
		switch {
		case parts(byKind[k]) != "":
		case mode == filter.TransportPull && k.connector != fleet.Nixl:
			other = k.connector
		default:
			return ""
		}
	}
	if other != "" {
		return fmt.Sprintf("mode pull needs %s, and the connector is %s", fleet.Nixl, other)
	}
	return "the replicas that compute prompts and those that answer differ in KV connector, version or block size"
}

// unpairedModels names the models of which no two replicas can pair although a mode is set.
func (r *router) unpairedModels() (notes []string) {
	mode := r.reloads.inForce().PrefillDecode.Mode
	if mode == filter.TransportOff {
		return nil
	}
	byModel := map[string][]*fleet.Replica{}
	for _, rep := range r.replicas.fleet.Snapshot().Replicas {
		if rep.Ready && len(rep.Models) > 0 {
			byModel[rep.Models[0].Base] = append(byModel[rep.Models[0].Base], rep)
		}
	}
	for _, model := range slices.Sorted(maps.Keys(byModel)) {
		if why := whyNoPair(mode, byModel[model]); why != "" && len(notes) < mostPairNotes {
			notes = append(notes, fmt.Sprintf("prefill and decode of model %q: no request is split, because %s", model, why))
		}
	}
	return notes
}
