package index

import (
	"maps"
	"slices"

	"warmroute/index/internal/hybrid"
)

// memberHost is the part of the index that one member sees: the hybrid.Host of a
// hybrid.Member.
type memberHost struct {
	*holder
	key    modelKey
	member *hybrid.Member
}

// Lock makes the caller the member's writer.
func (c *memberHost) Lock() { c.mu.Lock() }

// Unlock ends Lock.
func (c *memberHost) Unlock() { c.mu.Unlock() }

// Attach implements hybrid.Host.
func (c *memberHost) Attach() {
	for sh, slot := range c.in(func(k *shardKey) bool { return k.modelKey() == c.key }) {
		sh.follow(c.member, slot, false)
	}
}

// Settle implements hybrid.Host.
func (c *memberHost) Settle(hashes []uint64) {
	for sh, slot := range c.in(func(k *shardKey) bool { return k.modelKey() == c.key && c.member.Attached(k.group) }) {
		sh.hybrid.Settle(slot, &sh.info[slot].gpu, hashes)
	}
}

// Leading implements hybrid.Host.
func (c *memberHost) Leading(group int, hashes []uint64) (n int) {
	for sh, slot := range c.in(c.ofGroup(group)) {
		for n < len(hashes) && sh.info[slot].gpu.Find(hashes[n]) != 0 {
			n++
		}
	}
	return n
}

// Remove implements hybrid.Host.
func (c *memberHost) Remove(group int, hash uint64) {
	c.x.removed(c.holder, &Event{Kind: Removed, Tier: TierGPU, Scope: Scope{Group: group}, Hashes: []uint64{hash}}, &c.result)
}

// Find implements hybrid.Host.
func (c *memberHost) Find(group int, hashes []uint64, f func(i int, key uint64, depth int)) {
	for sh, slot := range c.in(c.ofGroup(group)) {
		for i, hash := range hashes {
			if p := sh.info[slot].gpu.Find(hash); p != 0 {
				f(i, sh.nodes.Key(p), sh.nodes.Depth(p.Node())+p.Offset()+1)
			}
		}
	}
}

// ofGroup tells the shards of a cache group of the model.
func (c *memberHost) ofGroup(group int) func(*shardKey) bool {
	return func(k *shardKey) bool { return k.group == group && k.modelKey() == c.key }
}

// memberOf returns the holder's member of a model, or nil. It takes no lock.
func (h *holder) memberOf(k modelKey) *hybrid.Member {
	if all := h.hosts.Load(); all != nil {
		for _, c := range *all {
			if c.key == k {
				return c.member
			}
		}
	}
	return nil
}

// memberOf returns a holder's member of a model, or nil. It takes no lock.
func (x *Index) memberOf(id HolderID, k modelKey) *hybrid.Member {
	if h := x.byID(id); h != nil {
		return h.memberOf(k)
	}
	return nil
}

// makeMember returns the holder's member of a model. It makes an absent one. h.mu is held.
func (h *holder) makeMember(k modelKey) *hybrid.Member {
	if m := h.memberOf(k); m != nil {
		return m
	}
	c := &memberHost{holder: h, key: k}
	c.member = h.x.makeModel(k).NewMember(int32(h.id), c, h.x.settingsOf(h.self.Replica))
	if why := h.doubt.Load(); why != nil {
		c.member.Doubt(*why)
	}
	all := append(slices.Clone(h.members()), c)
	h.hosts.Store(&all)
	return c.member
}

// members returns the hosts of the holder's members. It takes no lock.
func (h *holder) members() []*memberHost {
	if all := h.hosts.Load(); all != nil {
		return *all
	}
	return nil
}

// SetDoubt is Batch.Doubt of all that a holder reports from now on; "" ends the doubt.
func (x *Index) SetDoubt(self Holder, why string) {
	if h := x.known(self); h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.doubted(why)
	}
}

// Doubt returns why a holder's events may not tell everything that it holds, "" if they do.
func (x *Index) Doubt(self Holder) string {
	if h := x.known(self); h != nil {
		if why := h.doubt.Load(); why != nil {
			return *why
		}
	}
	return ""
}

// doubted makes the matches of the holder upper bounds until it begins anew, or with "" no longer.
// h.mu is held.
func (h *holder) doubted(why string) {
	switch was := h.doubt.Load(); {
	case was == nil && why == "", was != nil && *was == why:
		return
	case why == "":
		h.doubt.Store(nil)
	default:
		h.doubt.Store(&why)
	}
	for _, c := range h.members() {
		c.member.Doubt(why)
	}
}

// endMembers ends the holder's members. h.mu is held.
func (h *holder) endMembers() {
	for _, c := range h.members() {
		c.member.End()
	}
	h.hosts.Store(nil)
}

// grouped reports whether a member of the holder has hits that do not follow from full
// attention alone, or from events. It takes no lock.
func (h *holder) grouped() bool {
	return h.doubt.Load() != nil || slices.ContainsFunc(h.members(), func(c *memberHost) bool { return c.member.Grouped() })
}

func (x *Index) settingsOf(replica string) *GroupSettings {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.groupSettings[replica]
}

// makeModel returns a model's members. It makes an absent model.
func (x *Index) makeModel(k modelKey) *hybrid.Model {
	if m := x.modelAt(k); m != nil {
		return m
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.models.Load()
	if m := old[k]; m != nil {
		return m
	}
	next := maps.Clone(old)
	next[k] = hybrid.NewModel(k.model, &x.budget, hybrid.Memory{Clock: &x.clock, Pool: &x.pool, Seed: x.seed})
	x.models.Store(&next)
	if x.closed.Load() {
		next[k].Close()
	}
	return next[k]
}

// modelAt returns the members of a model, or nil.
func (x *Index) modelAt(k modelKey) *hybrid.Model { return (*x.models.Load())[k] }

// observe shows a batch to the holder's members, before any of its events is applied. h.mu
// is held.
func (h *holder) observe(b *Batch) {
	h.events = h.events[:0]
	var m *hybrid.Member
	var of modelKey
	news := false
	for i := range b.Events {
		ev := &b.Events[i]
		if !ev.followed() {
			h.events = append(h.events, hybrid.Event{})
			continue
		}
		h.events = append(h.events, ev.grouped())
		if m == nil || of != ev.Scope.modelKey() {
			if news {
				m.Reshape()
			}
			of = ev.Scope.modelKey()
			m, news = h.makeMember(of), false
		}
		news = m.Observe(&h.events[i]) || news
	}
	if m != nil && (m.ObserveKeying(b.Keying) || news) {
		m.Reshape()
	}
	if b.Doubt != "" {
		h.doubted(b.Doubt)
	}
}

// followed reports whether members follow an event: it stores blocks on GPU that do not end.
func (ev *Event) followed() bool {
	return ev.Kind == Stored && ev.Tier == TierGPU && ev.Until.IsZero()
}

// grouped returns the part of an event that members read.
func (ev *Event) grouped() hybrid.Event {
	s := &ev.Scope
	return hybrid.Event{Group: s.Group, Block: s.BlockSize, Spec: ev.Spec, Window: ev.Window, Ahead: ev.Ahead, Tokens: ev.Tokens,
		LoRA: s.LoRA, HasParent: ev.HasParent, Parent: ev.Parent, Hashes: ev.Hashes, Contents: ev.Content,
		Keys: ev.Content == nil && s.Scheme == SchemeTokens, Keyless: ev.Content == nil && s.Scheme != SchemeTokens}
}

// follower returns the member that follows an event, or nil. h.mu is held.
func (h *holder) follower(ev *Event) *hybrid.Member {
	if !ev.followed() || ev.Scope.Group < 0 || ev.Scope.Group >= hybrid.MaxGroups {
		return nil
	}
	return h.makeMember(ev.Scope.modelKey())
}

// removedInGroups applies a Removed event to the holder's members. h.mu is held.
func (h *holder) removedInGroups(ev *Event) {
	if ev.Tier != TierGPU || ev.Scope.Group < 0 || ev.Scope.Group >= hybrid.MaxGroups {
		return
	}
	for _, c := range h.members() {
		if h.has(ev.Part, c.key) {
			c.member.Removed(ev.Scope.Group, ev.Hashes)
			c.member.Review(ev.Scope.Group, ev.Hashes)
		}
	}
}
