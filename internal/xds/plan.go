package xds

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"warmroute/envoy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// Served is a model that a replica has served.
type Served struct {
	ID     string `json:"id"`
	Base   string `json:"base"`
	Root   string `json:"root,omitempty"` // as the replica says; an adapter's is its path
	LoRA   bool   `json:"lora,omitempty"`
	MaxLen int    `json:"max_len,omitempty"`
	Since  int64  `json:"since,omitempty"` // when some replica was first seen to serve it, Unix seconds
}

// Memory is the models that replicas served last, by address: a listed replica that
// does not answer, or has not answered yet, still serves them.
type Memory map[string][]Served

// Remember returns the models of s's replicas, by s or by m.
func (m Memory) Remember(s *fleet.Snapshot, now time.Time) Memory {
	since := map[string]int64{}
	for _, models := range m {
		for _, served := range models {
			since[served.ID] = min(cmp.Or(since[served.ID], served.Since), served.Since)
		}
	}
	out := make(Memory, len(s.Replicas))
	for _, r := range s.Replicas {
		if len(r.Models) == 0 {
			if old, ok := m[r.Addr]; ok {
				out[r.Addr] = old
			}
			continue
		}
		served := make([]Served, 0, len(r.Models))
		for i := range r.Models {
			one := servedOf(&r.Models[i])
			one.Since = cmp.Or(since[one.ID], now.Unix())
			served = append(served, one)
		}
		out[r.Addr] = served
	}
	return out
}

func servedOf(m *fleet.Model) Served {
	s := Served{ID: m.ID, Base: m.Base, Root: m.Root, LoRA: m.LoRA.Set, MaxLen: m.MaxLen}
	if s.LoRA {
		s.Root = m.LoRA.Path
	}
	return s
}

// models returns what the fleet may know of m before replicas answer.
func (m Memory) models() map[string][]fleet.Model {
	out := make(map[string][]fleet.Model, len(m))
	for addr, all := range m {
		for _, served := range all {
			model := fleet.Model{ID: served.ID, Base: served.Base, Root: served.Root, MaxLen: served.MaxLen}
			if served.LoRA {
				model.LoRA, model.Root = prefixhash.LoRA{Name: served.ID, Path: served.Root, Set: true}, ""
			}
			out[addr] = append(out[addr], model)
		}
	}
	return out
}

// Plan returns Envoy's view of s: a pure function of its arguments. It groups
// replicas by the model names that they serve, so that names for the same replicas
// (a model, its aliases, and adapters that are everywhere) share a cluster. With
// listing Envoy answers GET /v1/models if there are groups. Replicas that have never said
// what they serve may serve any model that no other is known to, also one that is only named.
func Plan(s *fleet.Snapshot, known Memory, listing bool) envoy.Fleet {
	var f envoy.Fleet
	holders := map[string][]int{} // model name → positions in f.Replicas
	listed := map[string][]Served{}
	private := map[string]bool{} // names that only tenants' own replicas serve
	var unread []int             // positions of replicas that have never said what they serve
	for _, r := range s.Replicas {
		at := len(f.Replicas)
		// If no replica answers this router, none is marked down: Envoy decides.
		f.Replicas = append(f.Replicas, envoy.Endpoint{Addr: r.Addr, Down: !r.Ready && s.Ready > 0})
		if len(known[r.Addr]) == 0 {
			f.Unread.Replicas, unread = append(f.Unread.Replicas, f.Replicas[at]), append(unread, at)
		}
		for _, m := range known[r.Addr] {
			if len(listed[m.ID]) == 0 {
				private[m.ID] = true
			}
			listed[m.ID] = append(listed[m.ID], m)
			holders[m.ID] = append(holders[m.ID], at)
			private[m.ID] = private[m.ID] && r.Tenant != ""
		}
	}
	for _, r := range s.Named {
		for i := range r.Models {
			if m := servedOf(&r.Models[i]); len(listed[m.ID]) == 0 {
				listed[m.ID], holders[m.ID], private[m.ID] = []Served{m}, unread, r.Tenant != ""
			}
		}
	}
	about := map[string]Served{}
	for id, list := range listed {
		about[id] = mostSay(list)
	}
	f.Unread.Name, f.Unread.Models = envoy.Unread, slices.Sorted(maps.Keys(holders))
	if len(f.Unread.Replicas) == 0 || len(holders) == 0 {
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
func mostSay(list []Served) Served {
	type kind struct {
		base string
		lora bool
	}
	return fleet.Most(list, func(s Served) kind { return kind{s.Base, s.LoRA} }, func(s Served) uint64 { return ^uint64(max(0, s.MaxLen)) })
}

// groups joins the names that the same replicas serve.
func groups(replicas []envoy.Endpoint, holders map[string][]int, about map[string]Served) []envoy.Group {
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

// list returns the body of GET /v1/models: the models that any client may use, in vLLM's form.
func list(about map[string]Served, private map[string]bool) string {
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
		m := model{ID: id, Object: "model", Created: s.Since, OwnedBy: "vllm", Root: cmp.Or(s.Root, s.Base), Permission: []struct{}{}}
		if s.LoRA {
			m.Parent, m.Root = &s.Base, cmp.Or(s.Root, id)
		} else if s.MaxLen > 0 {
			m.MaxLen = &s.MaxLen
		}
		answer.Data = append(answer.Data, m)
	}
	b, _ := json.Marshal(answer) // strings and numbers
	return string(b)
}
