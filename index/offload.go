package index

import "warmroute/index/internal/hybrid"

// Connector is the way in which vLLM moves blocks between the GPU and CPU memory.
type Connector = hybrid.Connector

// The connectors whose hits the index predicts.
const (
	NoConnector = hybrid.NoConnector

	OffloadChunks  = hybrid.Chunks  // OffloadingConnector
	OffloadSingles = hybrid.Singles // SimpleCPUOffloadConnector
)

// offloaded applies an event of blocks that a connector has copied off the GPU, and reports
// whether members follow the connector. h.mu is held.
func (a *applying) offloaded(ev *Event) bool {
	s := &ev.Scope
	if s.Group < 0 || s.Group >= hybrid.MaxGroups {
		return false
	}
	if ev.Connector == NoConnector || ev.Tier != TierCPU {
		a.h.makeMember(s.modelKey()).UntrackedBelow()
		return false
	}
	a.res.Stored += a.h.makeMember(s.modelKey()).Offloaded(&hybrid.Offload{By: ev.Connector, Group: s.Group, Hashes: ev.Hashes, Whole: s.BlockSize > 0})
	return true
}

// unloaded applies a Removed event of CPU memory to the members with a tier, and reports
// whether there are any. h.mu is held.
func (a *applying) unloaded(ev *Event) (any bool) {
	for _, c := range a.h.members() {
		if c.member.HasTier() && ev.Part.coversModel(c.key) {
			any = true
			a.res.Removed += c.member.Unloaded(ev.Scope.Group, ev.Hashes, !a.cleared)
		}
	}
	return any
}

// Hits implements hybrid.Index.
func (v *promptLookup) Hits(tokens []int32) {
	for m := range v.f.All() {
		if seat := v.seat(m.ID); m.Grouped && seat >= 0 && seat < len(tokens) {
			tokens[seat] = m.Hit
		}
	}
}

// Loaded implements hybrid.Index.
func (v *promptLookup) Loaded(members []*hybrid.Member, device, tokens []int32) {
	f := v.f
	f.write()
	for i := range f.list {
		m := &f.list[i]
		if seat := v.seat(m.ID); m.Grouped && seat >= 0 && seat < len(tokens) {
			m.keep(device[seat], v.scope.BlockSize)
			m.load(tokens[seat], v.scope.BlockSize)
			tokens[seat] = 0
		}
	}
	for seat, n := range tokens {
		if n > 0 {
			m := Match{ID: HolderID(members[seat].ID), Grouped: true}
			m.load(n, v.scope.BlockSize)
			f.list = append(f.list, m)
		}
	}
}

// seat returns the number of a holder among the model's members, or -1.
func (v *promptLookup) seat(id HolderID) int {
	if m := v.x.memberOf(id, v.scope.modelKey()); m != nil {
		return m.Seat()
	}
	return -1
}

// keep lowers the hit to so many tokens.
func (m *Match) keep(tokens int32, block int) {
	if m.Hit > tokens && block > 0 {
		m.Hit = tokens
		m.Blocks = min(m.Blocks, tokens/int32(block))
	}
}

// load adds tokens that are loaded from CPU memory.
func (m *Match) load(tokens int32, block int) {
	m.Loaded = tokens
	if block > 0 {
		m.Lower = max(m.Lower, (m.Hit+tokens)/int32(block))
		m.Storage = max(m.Storage, m.Lower)
	}
}
