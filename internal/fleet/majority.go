package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"warmroute/internal/bound"
	"warmroute/prefixhash"
)

// Most returns an element of list with the value that most have, so that no replica speaks for
// all: of values that equally many have, the one of the lowest age. list is not empty.
func Most[E any, K comparable](list []E, value func(E) K, age func(E) uint64) E {
	first := value(list[0])
	if !slices.ContainsFunc(list[1:], func(e E) bool { return value(e) != first }) {
		return list[0]
	}
	count := map[K]int{}
	for _, e := range list {
		count[value(e)]++
	}
	return slices.MinFunc(list, func(a, b E) int {
		return cmp.Or(count[value(b)]-count[value(a)], cmp.Compare(age(a), age(b)))
	})
}

// kind is what a replica takes a model's name for: the name of a base model, or an adapter of one.
type kind struct {
	base string
	lora prefixhash.LoRA
}

func kindOf(c Candidate) kind {
	lora := c.Model.LoRA
	lora.Path = "" // an adapter's path may differ between replicas
	return kind{c.Model.Base, lora}
}

func joinedOf(c Candidate) uint64 { return c.Replica.Joined }
func rootOf(c Candidate) string   { return c.Model.Root }

// Agreed returns the model as most of the replicas list it that Serving returns, nil if there
// are none.
func (s *Snapshot) Agreed(model, tenant string) *Model { return s.served(model, tenant).agreed }

// agreed returns the model as most of the candidates list it.
func agreed(list []Candidate) *Model { return Most(list, kindOf, joinedOf).Model }

// Roots returns where most of the ready replicas of each base model have loaded it from.
func (s *Snapshot) Roots() map[string]string {
	out := map[string]string{}
	for base, list := range s.bases() {
		out[base] = ""
		if list = slices.DeleteFunc(list, func(c Candidate) bool { return c.Model.Root == "" }); len(list) > 0 {
			out[base] = Most(list, rootOf, joinedOf).Model.Root
		}
	}
	return out
}

// bases returns each base model's ready replicas.
func (s *Snapshot) bases() map[string][]Candidate {
	out := map[string][]Candidate{}
	for _, r := range s.Replicas {
		for i := range r.Models {
			list := out[r.Models[i].Base]
			if r.Ready && (len(list) == 0 || list[len(list)-1].Replica != r) {
				out[r.Models[i].Base] = append(list, Candidate{r, &r.Models[i]})
			}
		}
	}
	return out
}

// Dissent names the ready replicas that say of a model what most others do not, each once, with
// the consequence.
func (s *Snapshot) Dissent() []string {
	said := map[string]string{}
	for _, key := range slices.SortedFunc(maps.Keys(s.serving), func(a, b serving) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.tenant, b.tenant))
	}) {
		of := s.serving[key]
		for _, c := range of.list {
			if k := kindOf(Candidate{Model: of.agreed}); kindOf(c) != k && said[c.Replica.Addr] == "" {
				said[c.Replica.Addr] = fmt.Sprintf("replica %s lists %q as %s, other replicas as %s: prompts are keyed as for the others, so none is found on it",
					c.Replica.Addr, key.model, kindOf(c), k)
			}
		}
	}
	roots, bases := s.Roots(), s.bases()
	for _, base := range slices.Sorted(maps.Keys(bases)) {
		list := bases[base]
		other := slices.DeleteFunc(slices.Clone(list), func(c Candidate) bool { return c.Model.Root == roots[base] || c.Model.Root == "" })
		if 2*len(other) >= len(list) {
			continue // each may have a path of its own
		}
		for _, c := range other {
			if said[c.Replica.Addr] == "" {
				said[c.Replica.Addr] = fmt.Sprintf("replica %s has loaded %q from %q, most replicas from %q: token ids are computed by the files of the latter",
					c.Replica.Addr, base, c.Model.Root, roots[base])
			}
		}
	}
	var notes []string
	for _, addr := range slices.Sorted(maps.Keys(said)) {
		notes = append(notes, said[addr])
	}
	return bound.Notes(notes, mostDissent, "replicas list other models than most")
}

// mostDissent bounds the notes of Dissent.
const mostDissent = 20

func (k kind) String() string {
	if k.lora.Set {
		return fmt.Sprintf("an adapter of %q", k.base)
	}
	return fmt.Sprintf("a name of %q", k.base)
}
