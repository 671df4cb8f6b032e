package hybrid

import "warmroute/prefixhash"

// Sight says which of the values that a request mixes into its blocks, besides the tokens,
// the events of a cache show.
type Sight uint8

const (
	SightUsual  Sight = iota // salts and adapters, as vLLM's do
	SightAll                 // namespaces (SGLang's extra_key), too
	SightSalts               // salts alone
	SightTokens              // none
	sights
)

// Mix is the set of values that a request mixes into its blocks.
type Mix struct{ Salt, LoRA, Namespace bool }

// Differs reports whether a prompt has to be looked up again, by other keys than the usual ones.
func (s Sight) Differs(m Mix) bool {
	switch s {
	case SightAll:
		return m.Namespace && !m.LoRA
	case SightSalts:
		return m.LoRA
	case SightTokens:
		return m.LoRA || m.Salt
	}
	return false
}

// Seen returns the request as it shows in the keys of its blocks.
func (s Sight) Seen(r prefixhash.Request) prefixhash.Request {
	if s != SightAll {
		r.Namespace = ""
	}
	if !s.Adapters() {
		r.LoRA = prefixhash.LoRA{}
	}
	if s == SightTokens {
		r.CacheSalt = nil
	}
	return r
}

// Adapters reports whether blocks of adapters can be told apart.
func (s Sight) Adapters() bool { return s == SightUsual || s == SightAll }

// Sights is a set of Sights.
type Sights uint32

// All calls f for each Sight but the usual one.
func (s Sights) All(f func(Sight)) {
	for one := SightUsual + 1; one < sights; one++ {
		if s>>one&1 != 0 {
			f(one)
		}
	}
}

// What prompts of a model have mixed into their blocks, as bits of Model.mixed.
const (
	mixedNamespace = 1 << iota
	mixedBoth      // a namespace and an adapter
)

// Sights returns what the events of the SGLang members show; none without such members.
func (g *Model) Sights() Sights { return Sights(g.sights.Load()) }

// Note records what a prompt mixes into its blocks.
func (g *Model) Note(m Mix) {
	if m.Namespace && g.mixed.Load()&mixedNamespace == 0 {
		g.mixed.Or(mixedNamespace)
	}
	if m.Namespace && m.LoRA && g.mixed.Load()&mixedBoth == 0 {
		g.mixed.Or(mixedBoth)
	}
}

// set takes new settings.
func (m *Member) set(s *Settings) {
	m.settings = s
	m.sight.Store(0)
	m.loads.Store(0)
	if s == nil {
		return
	}
	if s.Loads {
		m.loads.Store(int32(s.LoadLeast) + 1)
	}
	if s.Rule == RuleSGLang {
		m.sight.Store(uint32(s.Sight) + 1)
		m.model.sights.Or(1 << s.Sight)
	}
}

// Sight returns what the member's events show.
func (m *Member) Sight() Sight {
	if s := m.sight.Load(); s > 0 {
		return Sight(s - 1)
	}
	return SightUsual
}

// Loads returns the least number of tokens for which the member loads blocks from CPU memory
// behind those on GPU; false: it does not, or a tier of its own decides.
func (m *Member) Loads() (least int32, ok bool) {
	least = m.loads.Load() - 1
	return least, least >= 0
}

// unseenWhy returns the reason, in one sentence, why blocks of requests cannot be told apart
// from those of a request with mix, or "".
func (m *Member) unseenWhy(mix Mix) string {
	mixed := m.model.mixed.Load()
	if mixed == 0 || m.sight.Load() == 0 {
		return ""
	}
	if m.Sight() == SightAll {
		if mix.LoRA && mixed&mixedBoth != 0 {
			return "requests have an extra_key and an adapter, whose namespaces its events do not tell apart, so the prediction may be too high"
		}
		return ""
	}
	return `requests have an extra_key, which its events do not show, so the prediction may be too high: set "format":"dynamo" in --kv-events-config`
}
