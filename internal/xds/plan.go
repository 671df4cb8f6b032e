package xds

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"warmroute/envoy"
	"warmroute/internal/fleet"
)

// Plan returns Envoy's view of s: a pure function of its arguments. It groups
// replicas by the model names that they serve, so that names for the same replicas
// (a model, its aliases, and adapters that are everywhere) share a cluster. With
// listing Envoy answers GET /v1/models if there are groups. A replica that does not answer serves
// what it served last; one that has never said what it serves may serve any model that no other is
// known to, also one that is only named; and so may one that lists more than are read.
func Plan(s *fleet.Snapshot, listing bool) envoy.Fleet {
	var f envoy.Fleet
	holders := map[string][]int{} // model name → positions in f.Replicas
	listed := map[string][]fleet.Model{}
	private := map[string]bool{} // names that only tenants' own replicas serve
	var unread []int             // positions of replicas that may serve further models
	for _, r := range s.Replicas {
		at := len(f.Replicas)
		// If no replica answers this router, none is marked down: Envoy decides.
		f.Replicas = append(f.Replicas, envoy.Endpoint{Addr: r.Addr, Down: !r.Ready && s.Ready > 0})
		if len(r.Models) == 0 || r.Partial() {
			f.Unread.Replicas, unread = append(f.Unread.Replicas, f.Replicas[at]), append(unread, at)
		}
		for _, m := range r.Models {
			if len(listed[m.ID]) == 0 {
				private[m.ID] = true
			}
			listed[m.ID] = append(listed[m.ID], m)
			holders[m.ID] = append(holders[m.ID], at)
			private[m.ID] = private[m.ID] && r.Tenant != ""
		}
	}
	for _, r := range s.Named {
		for _, m := range r.Models {
			if len(listed[m.ID]) == 0 {
				listed[m.ID], holders[m.ID], private[m.ID] = []fleet.Model{m}, unread, r.Tenant != ""
			}
		}
	}
	about := map[string]fleet.Model{}
	for id, list := range listed {
		about[id] = mostSay(list)
	}
	f.Unread.Name, f.Unread.Models = envoy.Unread, slices.Sorted(maps.Keys(holders))
	if n := len(f.Unread.Replicas); n == 0 || n == len(f.Replicas) || len(holders) == 0 { // any replica is the default
		f.Unread = envoy.Group{}
	}
	f.Groups = groups(f.Replicas, holders, about)
	if len(f.Groups) < 2 { // one model: nothing to distinguish
		f.Groups = nil
		return f
	}
	if listing {
		f.Listing = list(about, private)
	}
	return f
}

// mostSay returns a model as most of its replicas list it, with their longest context.
func mostSay(list []fleet.Model) fleet.Model {
	type kind struct {
		base string
		lora bool
	}
	return fleet.Most(list, func(m fleet.Model) kind { return kind{m.Base, m.LoRA.Set} }, func(m fleet.Model) uint64 { return ^uint64(max(0, m.MaxLen)) })
}

// groups joins the names that the same replicas serve.
func groups(replicas []envoy.Endpoint, holders map[string][]int, about map[string]fleet.Model) []envoy.Group {
	bySet := map[string]*envoy.Group{}
	var out []*envoy.Group
	for _, id := range slices.Sorted(maps.Keys(holders)) {
		var set strings.Builder
		for _, at := range holders[id] {
			set.WriteString(replicas[at].Addr + " ")
		}
		g := bySet[set.String()]
		if g == nil {
			g = &envoy.Group{}
			for _, at := range holders[id] {
				g.Replicas = append(g.Replicas, replicas[at])
			}
			bySet[set.String()] = g
			out = append(out, g)
		}
		g.Models = append(g.Models, id)
		if g.Name == "" && about[id].Base == id {
			g.Name = id
		}
	}
	named := make([]envoy.Group, 0, len(out))
	for _, g := range out {
		g.Name = "model:" + cmp.Or(g.Name, g.Models[0])
		named = append(named, *g)
	}
	return named
}

// list returns the body of GET /v1/models: the models that any client may use, in vLLM's form. It
// has no time of creation: one that changes would be another listener for Envoy.
func list(about map[string]fleet.Model, private map[string]bool) string {
	type model struct {
		ID         string     `json:"id"`
		Object     string     `json:"object"`
		Created    int64      `json:"created"`
		OwnedBy    string     `json:"owned_by"`
		Root       string     `json:"root"`
		Parent     *string    `json:"parent"`
		MaxLen     *int       `json:"max_model_len"`
		Permission []struct{} `json:"permission"`
	}
	var answer struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}
	answer.Object = "list"
	for _, id := range slices.Sorted(maps.Keys(about)) {
		if private[id] {
			continue
		}
		s := about[id]
		m := model{ID: id, Object: "model", OwnedBy: "vllm", Root: cmp.Or(s.Root, s.Base), Permission: []struct{}{}}
		if s.LoRA.Set {
			m.Parent, m.Root = &s.Base, cmp.Or(s.LoRA.Path, id)
		} else if s.MaxLen > 0 {
			m.MaxLen = &s.MaxLen
		}
		answer.Data = append(answer.Data, m)
	}
	b, _ := json.Marshal(answer) // strings and numbers
	return string(b)
}
