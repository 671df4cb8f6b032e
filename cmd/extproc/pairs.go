package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"warmroute/filter"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
)

// mostPairNotes bounds the models that notes about pairs name.
const mostPairNotes = 8

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

// unpairedModels names the models of which no two replicas can pair although a mode is set, or says
// that a trial or the policy splits none.
func (r *router) unpairedModels() (notes []string) {
	c := r.reloads.inForce()
	mode := c.PrefillDecode.Mode
	switch {
	case mode == filter.TransportOff:
		return nil
	case c.Filter.Mode == modeShadow:
		return []string{"prefill and decode: no request is split, because filter.mode is shadow"}
	case c.Policy.RoutePolicy != nil && *c.Policy.RoutePolicy != policy.NameTTFT:
		return []string{fmt.Sprintf("prefill and decode: no request is split, because policy.route_policy is %s and ttft alone prices splits", *c.Policy.RoutePolicy)}
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
