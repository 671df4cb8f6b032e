package feed

import (
	"cmp"

	"warmroute/index"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// Layout sets what the layers of a model keep by its files, nil if the files do not determine
// it. It holds for the model's replicas, also for later ones.
func (f *Feed) Layout(model string, l *cachelayout.Layout) {
	f.mu.Lock()
	if l == nil && f.layouts[model] == nil {
		f.mu.Unlock()
		return
	}
	f.layouts[model] = l
	f.mu.Unlock()
	f.regroup(model)
}

// engines counts a model's replicas by their engine. Prompts are rendered by the rules of the
// one that more of them run (tokens.Remote), and predictions for the others are not exact.
type engines struct{ sglang, others int }

// rules reports whether prompts are rendered by SGLang's rules, or by the others'.
func (e engines) rules(sglang bool) bool { return sglang == (e.sglang > e.others) }

// count adds n to the replicas of r's model.
func (f *Feed) count(r *fleet.Replica, n int) {
	if len(r.Models) == 0 {
		return
	}
	model := r.Models[0].Base
	f.mu.Lock()
	before := f.engines[model]
	after := before
	if r.SGLang != nil {
		after.sglang += n
	} else {
		after.others += n
	}
	f.engines[model] = after
	if after == (engines{}) {
		delete(f.engines, model)
	}
	f.mu.Unlock()
	if before.rules(true) != after.rules(true) {
		f.regroup(model)
	}
}

// regroup gives the index the settings of the cache groups of a model's replicas.
func (f *Feed) regroup(model string) {
	f.mu.Lock()
	var of []*fleet.Replica
	for _, s := range f.replicas {
		if len(s.replica.Models) > 0 && s.replica.Models[0].Base == model {
			of = append(of, s.replica)
		}
	}
	f.mu.Unlock()
	for _, r := range of {
		f.setGroups(r)
	}
}

// setGroups gives the index the settings of a replica's cache groups. Calls are serialised,
// so that the last one sets the newest state.
func (f *Feed) setGroups(r *fleet.Replica) {
	f.groupsMu.Lock()
	defer f.groupsMu.Unlock()
	var l *cachelayout.Layout
	foreign := false
	f.mu.Lock()
	s := f.replicas[r.Addr]
	if len(r.Models) > 0 {
		l, foreign = f.layouts[r.Models[0].Base], !f.engines[r.Models[0].Base].rules(r.SGLang != nil)
	}
	f.mu.Unlock()
	if s == nil || s.replica != r { // it has left, and another may have come
		return
	}
	var told *index.GroupSettings
	if r.SGLang != nil {
		told = r.SGLang.Settings(l.KindsOf())
	} else {
		told = groupSettings(r)
		told.Chunk = l.ChunkOr(told.Chunk)
	}
	if foreign {
		told.Limit = "its model is also served by another engine, by whose rules prompts are rendered, so the prediction may be wrong where its own rules differ: serve it under a name of its own"
	}
	f.index.SetGroups(r.Addr, told)
}

// groupSettings returns the settings of a replica's cache groups without its events and
// files.
func groupSettings(r *fleet.Replica) *index.GroupSettings {
	c := r.Cache
	release := prefixhash.ParseRelease(r.Version)
	t := &index.GroupSettings{Rule: index.GroupRuleOf(release), Unit: unitOf(r), Block: r.BlockSize, Chunk: c.ChunkSize, Replay: c.ReplayWindow, Reports: r.KVReportFull}
	// Of a release without a rule it is not known which metrics it has when it drafts.
	if c.DraftGroups != "" || r.Draftless && t.Rule != index.GroupRuleUnknown {
		t.Eagle, _ = c.Drafts() // validated
		t.EagleKnown = true
	}
	if r.Sidecar && r.KVReportFull {
		t.Limit = "its events come through a sidecar, which cannot distinguish repeated announcements (kv_report_full) from copies, so the prediction may be too high: let the router subscribe to it"
	}
	return t
}

func unitOf(r *fleet.Replica) int { return cmp.Or(r.Cache.PrefixMatchUnit, r.HashUnit) }

// hashesOf returns vLLM's ways in which a replica may hash its blocks, the reported one first;
// presume means that it is certain.
func hashesOf(r *fleet.Replica) (all []*prefixhash.VLLM, presume bool) {
	if r.SGLang != nil {
		return nil, false
	}
	var seeds []string
	if r.HashSeed != nil {
		seeds = append(seeds, *r.HashSeed)
	}
	candidates := prefixhash.ParseRelease(r.Version).Candidates(seeds...)
	for _, likely := range []bool{true, false} {
		for _, v := range candidates {
			if is := v.Algorithm().String() == r.HashAlgorithm && v.Seeded() == (r.HashSeed != nil); is == likely {
				all = append(all, v)
			}
		}
	}
	return all, r.HashAlgorithm != ""
}

// groups returns a rank's cache groups as far as they are known.
func (f *Feed) groups(r *fleet.Replica, rank int) *index.Groups {
	if len(r.Models) == 0 {
		return nil
	}
	id := f.index.ID(index.Holder{Replica: r.Addr, Rank: rank})
	g, ok := f.index.ExplainGroups(id, index.Scope{Tenant: r.Tenant, Model: r.Models[0].Base}, nil)
	if !ok {
		return nil
	}
	return &g
}

// shown returns the tokens of a replica's blocks as its events, or those that its sidecar
// reports, show them.
func (f *Feed) shown(r *fleet.Replica) int {
	for _, rank := range r.Ranks {
		if len(r.Models) > 0 {
			if size := f.index.BlockSize(f.index.ID(index.Holder{Replica: r.Addr, Rank: rank}), r.Tenant, r.Models[0].Base); size > 0 {
				return size
			}
		}
	}
	return 0
}
