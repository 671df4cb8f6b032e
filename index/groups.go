package index

import (
	"warmroute/index/internal/hybrid"
	"warmroute/prefixhash"
)

// GroupSettings are the facts about a replica's cache groups that its events do not
// contain: configuration, labels, the model's files.
type GroupSettings = hybrid.Settings

// MaxGroups bounds the cache groups of a replica.
const MaxGroups = hybrid.MaxGroups

// GroupRule is a generation of vLLM's lookup.
type GroupRule = hybrid.Rule

// The generations of vLLM's lookup, for GroupSettings. Releases 0.27 to 0.31 share
// one; 0.33 has 0.32's. Of earlier releases only caches with one group of full attention are
// followed, for which all generations are equal.
const (
	GroupRuleUnknown = hybrid.RuleUnknown

	GroupRule027 = hybrid.Rule027
	GroupRule032 = hybrid.Rule032

	GroupRuleSGLang = hybrid.RuleSGLang
)

// Sight says which values of requests a holder's events show, for GroupSettings.
type Sight = hybrid.Sight

// The sights of engines' events.
const (
	SightUsual  = hybrid.SightUsual
	SightAll    = hybrid.SightAll
	SightSalts  = hybrid.SightSalts
	SightTokens = hybrid.SightTokens
)

// Mix is the set of values that a request mixes into its blocks besides their tokens, for
// prompts with the method Mixes.
type Mix = hybrid.Mix

// Flight is what else a holder has in flight when a prompt arrives there, for prompts with the
// method InFlight that ExplainGroups describes.
type Flight = hybrid.Flight

// Keying says how the keys of a prompt's blocks are computed.
type Keying = hybrid.Keying

// Prompt is a prompt that FindPrompt looks up.
type Prompt = hybrid.Prompt

// Groups describes the cache groups of a holder, and how much of a prompt each hits.
type Groups = hybrid.Groups

// GroupHeld describes how much of a prompt groups hold that are looked up together.
type GroupHeld = hybrid.GroupHeld

// FullAttention is the kind of a GroupHeld of full attention.
var FullAttention = hybrid.Full.String()

// GroupTrust says how reliable the predictions for a cache are.
type GroupTrust = hybrid.Trust

// Guess is a holder's hit of a prompt by what is assumed of its CPU memory.
type Guess = hybrid.Guess

// GroupRuleOf returns the lookup of a vLLM release, or GroupRuleUnknown: then the form of
// the events decides.
func GroupRuleOf(r prefixhash.Release) GroupRule {
	switch {
	case r.Between(27, 31):
		return GroupRule027
	case r.Between(32, 33):
		return GroupRule032
	}
	return GroupRuleUnknown
}

// SetGroups sets the facts about a replica's cache groups. They remain through
// incarnations. nil removes them.
func (x *Index) SetGroups(replica string, t *GroupSettings) {
	x.mu.Lock()
	if t == nil {
		delete(x.groupSettings, replica)
	} else {
		x.groupSettings[replica] = t
	}
	x.mu.Unlock()
	for h := range x.all() {
		if h.self.Replica == replica {
			h.mu.Lock()
			for _, c := range h.members() {
				c.member.Configure(t)
			}
			h.mu.Unlock()
		}
	}
}

// Grouped reports whether a holder's hits do not follow from its blocks of full attention
// alone, or its events may not tell everything. A snapshot has no groups, so it leaves such a holder out.
func (x *Index) Grouped(self Holder) bool {
	h := x.known(self)
	return h != nil && h.grouped()
}

// Trust returns how reliable the matches of a holder are. ok is false if the events of the
// holder have not shown a group yet.
func (x *Index) Trust(id HolderID, tenant, model string) (t GroupTrust, ok bool) {
	if m := x.memberOf(id, modelKey{tenant, model}); m != nil {
		return m.Trust()
	}
	return GroupTrust{}, false
}

// Partial reports whether a holder's cache has groups that keep only a part of a prompt's past, so
// that a prompt in flight does not leave all of its blocks.
func (x *Index) Partial(id HolderID, s Scope) bool {
	m := x.memberOf(id, s.modelKey())
	return m != nil && m.Partial()
}

// BlockSize returns the tokens of a holder's blocks as its events show them, if its cache is one
// group of full attention; otherwise, and before events have shown it, 0.
func (x *Index) BlockSize(id HolderID, tenant, model string) int {
	if m := x.memberOf(id, modelKey{tenant, model}); m != nil {
		return m.BlockSize()
	}
	return 0
}

// ExplainGroups describes the groups of one holder and how much of a prompt they hit; ok is
// false if the events of the holder have not shown a group yet. With a nil prompt it
// describes the groups alone.
func (x *Index) ExplainGroups(id HolderID, s Scope, p Prompt) (g Groups, ok bool) {
	m := x.memberOf(id, s.modelKey())
	if m == nil {
		return g, false
	}
	if mixed, ok := p.(hybrid.Mixed); ok {
		x.modelAt(s.modelKey()).Note(mixed.Mixes())
	}
	if g, ok = m.Describe(); !ok || p == nil {
		return g, ok
	}
	reader, r := x.enter()
	defer reader.Leave()
	v := r.promptLookup(x, &s, nil)
	r.hybrid.Explain(&g, m, v.ask(p), v)
	v.end()
	return g, true
}

// Guess returns how much of a prompt a holder hits by what is assumed of its CPU memory. It is
// empty without any, or if the hit is not known. keys are the prompt's as for FindPrompt. Guess
// takes no lock. Answered takes it back.
func (x *Index) Guess(id HolderID, s Scope, keys []prefixhash.Key, p Prompt) (g Guess) {
	m := x.memberOf(id, s.modelKey())
	if m == nil {
		return g
	}
	reader, r := x.enter()
	defer reader.Leave()
	v := r.promptLookup(x, &s, keys)
	g = r.hybrid.Guess(m, v.ask(p), v)
	v.end()
	return g
}

// Answered records how many tokens of a prompt given to Guess the holder took from its cache,
// by its own report. alone says that no other request is known to have used the cache meanwhile.
func (x *Index) Answered(id HolderID, s Scope, g *Guess, reported int, alone bool) {
	h := x.byID(id)
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.memberOf(s.modelKey()); m != nil {
		m.Answered(g, reported, alone)
	}
}
