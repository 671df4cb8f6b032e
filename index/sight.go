package index

import (
	"slices"

	"warmroute/index/internal/hybrid"
	"warmroute/prefixhash"
)

// findOtherwise replaces, in f, the matches of holders whose blocks of this prompt have other
// keys, because their events show more or less of what the request mixes into its blocks.
// Most prompts have no such values.
func (x *Index) findOtherwise(f *Found, s Scope, p Prompt, m *hybrid.Model) {
	mixed, ok := p.(hybrid.Mixed)
	if !ok {
		return
	}
	mix := mixed.Mixes()
	if mix == (Mix{}) || s.BlockSize <= 0 {
		return
	}
	m.Note(mix)
	m.Sights().All(func(sight Sight) {
		if !sight.Differs(mix) {
			return
		}
		scope := s
		if !sight.Adapters() {
			scope.LoRA = prefixhash.LoRA{}
		}
		keys := p.AppendChain(nil, Keying{Unit: s.BlockSize, Sight: sight})
		var other Found
		x.findPrompt(&other, &scope, keys[:min(len(keys), max(0, p.Tokens()-1)/s.BlockSize)], &sighted{p, sight}, m)
		has := func(id HolderID) bool {
			m := x.memberOf(id, s.modelKey())
			return m != nil && m.Sight() == sight
		}
		f.write()
		f.list = slices.DeleteFunc(f.list, func(m Match) bool { return has(m.ID) })
		for m := range other.All() {
			if has(m.ID) {
				f.list = append(f.list, m)
			}
		}
	})
}

// sighted is a prompt whose keys depend on what a sight shows.
type sighted struct {
	Prompt
	sight Sight
}

// AppendChain implements Prompt.
func (s *sighted) AppendChain(dst []prefixhash.Key, c Keying) []prefixhash.Key {
	c.Sight = s.sight
	return s.Prompt.AppendChain(dst, c)
}
