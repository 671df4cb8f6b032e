package indexrpc

import (
	"cmp"
	"context"
	"slices"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/prefixhash"
)

// defaultTopK is how many routes are returned when the request has no top_k: as many
// as a router tries.
const defaultTopK = 3

// LookupRoute implements the contract. It never returns an error.
func (s *Server) LookupRoute(_ context.Context, q *indexpb.LookupRouteRequest) (*indexpb.LookupRouteResponse, error) {
	start := index.Now()
	out := &indexpb.LookupRouteResponse{TotalTokens: totalTokens(q)}
	out.Routes, out.Reason = s.routes(q)
	for _, r := range out.Routes {
		if out.TotalTokens > 0 {
			r.Share = min(1, float64(r.GetMatchedTokens())/float64(out.TotalTokens))
		}
	}
	if out.Reason == indexpb.Reason_MATCHED {
		out.Hint = indexpb.Hint_USE_HINT
	}
	s.metrics.looked(q.GetModel(), out, index.Now().Sub(start))
	return out, nil
}

// totalTokens returns the length of the request's prompt, 0 when it is not known.
func totalTokens(q *indexpb.LookupRouteRequest) uint64 {
	return cmp.Or(q.GetPromptTokens(), uint64(len(q.GetBlockHashes()))*uint64(q.GetBlockSize()))
}

func (s *Server) routes(q *indexpb.LookupRouteRequest) ([]*indexpb.Route, indexpb.Reason) {
	switch {
	case !s.ready.Load():
		return nil, indexpb.Reason_NOT_READY
	case q.GetHashScheme() == "":
		return nil, indexpb.Reason_EMPTY_SCHEME
	case len(q.GetBlockHashes()) == 0:
		return nil, indexpb.Reason_EMPTY_PREFIX
	}
	keys := make([]prefixhash.Key, 0, len(q.GetBlockHashes()))
	for _, h := range q.GetBlockHashes() {
		k, ok := s.key(h)
		if !ok {
			return nil, indexpb.Reason_EMPTY_HASH
		}
		keys = append(keys, k)
	}
	found := s.match(q, q.GetTenant(), keys, nil)
	if q.GetTenant() != "" {
		found = s.match(q, "", keys, found)
	}
	if len(found) == 0 {
		return nil, s.why(q)
	}
	if allowed := q.GetCandidates(); len(allowed) > 0 {
		found = slices.DeleteFunc(found, func(r *indexpb.Route) bool { return !slices.Contains(allowed, r.GetReplicaId()) })
		if len(found) == 0 {
			return nil, indexpb.Reason_NO_CANDIDATE
		}
	}
	if found = slices.DeleteFunc(found, func(r *indexpb.Route) bool { return r.GetFreshness() == 0 }); len(found) == 0 {
		return nil, indexpb.Reason_STALE
	}
	slices.SortFunc(found, func(a, b *indexpb.Route) int {
		return cmp.Or(cmp.Compare(b.GetScore(), a.GetScore()), cmp.Compare(a.GetReplicaId(), b.GetReplicaId()), cmp.Compare(a.GetRank(), b.GetRank()))
	})
	found = found[:min(len(found), int(cmp.Or(min(q.GetTopK(), index.MaxHolders), defaultTopK)))]
	for _, r := range found {
		r.Stats = s.reporterOf(index.Holder{Replica: r.GetReplicaId(), Rank: int(r.GetRank())}).statsOf()
	}
	return found, indexpb.Reason_MATCHED
}

// match appends the holders of the keys in one tenant's scope.
func (s *Server) match(q *indexpb.LookupRouteRequest, tenant string, keys []prefixhash.Key, dst []*indexpb.Route) []*indexpb.Route {
	scope := index.Scope{Tenant: tenant, Model: q.GetModel(), LoRA: loraOf(q.GetLora()), Scheme: q.GetHashScheme(),
		BlockSize: int(q.GetBlockSize()), Group: int(q.GetGroup())}
	if scope.BlockSize > 0 {
		for _, m := range s.x.Lookup(nil, scope, keys) {
			dst = s.route(dst, m, uint64(m.Blocks)*uint64(scope.BlockSize))
		}
		return dst
	}
	// Opaque hashes each stand for themselves; a replica's best one counts.
	best := make(map[index.HolderID]*indexpb.Route)
	var buf []index.Match
	for i := range keys {
		worth := s.opaque.tokensOf(opaqueKey{scope, keys[i]})
		buf = s.x.Lookup(buf[:0], scope, keys[i:i+1])
		for _, m := range buf {
			if one := s.route(nil, m, worth); len(one) > 0 && (best[m.ID] == nil || best[m.ID].GetMatchedTokens() < worth) {
				best[m.ID] = one[0]
			}
		}
	}
	for _, r := range best {
		dst = append(dst, r)
	}
	return dst
}

// route appends a match of tokens, ranked by tokens and freshness.
func (s *Server) route(dst []*indexpb.Route, m index.Match, tokens uint64) []*indexpb.Route {
	h, ok := s.x.HolderOf(m.ID)
	if !ok || m.Blocks == 0 || tokens == 0 {
		return dst
	}
	f := freshness(s.o.Now().Sub(s.newest(h, m.ID)), s.o.TTL)
	return append(dst, &indexpb.Route{ReplicaId: h.Replica, Rank: int32(h.Rank), MatchedBlocks: uint64(m.Blocks),
		MatchedTokens: tokens, Freshness: f, Score: float64(tokens) * f})
}

// why returns the reason why no replica matched.
func (s *Server) why(q *indexpb.LookupRouteRequest) indexpb.Reason {
	reason := indexpb.Reason_UNKNOWN_MODEL
	for sc, blocks := range s.x.Scopes() {
		if blocks == 0 || sc.Model != q.GetModel() || sc.Tenant != "" && sc.Tenant != q.GetTenant() {
			continue
		}
		if sc.Scheme == q.GetHashScheme() {
			return indexpb.Reason_NO_MATCH
		}
		reason = indexpb.Reason_SCHEME_MISMATCH
	}
	return reason
}

// GetCacheState implements the contract.
func (s *Server) GetCacheState(_ context.Context, q *indexpb.GetCacheStateRequest) (*indexpb.GetCacheStateResponse, error) {
	out := &indexpb.GetCacheStateResponse{Epoch: s.epoch}
	wanted := func(tenant, model string) bool {
		return (q.GetAllTenants() || tenant == q.GetTenant()) && (q.GetModel() == "" || model == q.GetModel())
	}
	for sc, blocks := range s.x.Scopes() {
		if !wanted(sc.Tenant, sc.Model) {
			continue
		}
		m := &indexpb.ModelState{Tenant: sc.Tenant, Model: sc.Model, HashScheme: sc.Scheme, BlockSize: uint32(sc.BlockSize),
			Group: int32(sc.Group), Lora: loraTo(sc.LoRA), Blocks: uint64(blocks)}
		out.Models = append(out.Models, m)
	}
	for _, h := range s.x.Holders() {
		if r := s.replicaState(h, q, wanted); r != nil {
			out.Replicas = append(out.Replicas, r)
		}
	}
	slices.SortFunc(out.Models, func(a, b *indexpb.ModelState) int {
		return cmp.Or(cmp.Compare(a.GetModel(), b.GetModel()), cmp.Compare(a.GetTenant(), b.GetTenant()), cmp.Compare(a.GetHashScheme(), b.GetHashScheme()), cmp.Compare(a.GetLora().GetName(), b.GetLora().GetName()))
	})
	slices.SortFunc(out.Replicas, func(a, b *indexpb.ReplicaState) int {
		return cmp.Or(cmp.Compare(a.GetReplicaId(), b.GetReplicaId()), cmp.Compare(a.GetRank(), b.GetRank()))
	})
	return out, nil
}

// replicaState returns the state of a holder for the wanted tenants and models; nil if
// it holds none of their blocks and its last report was about others.
func (s *Server) replicaState(h index.Holder, q *indexpb.GetCacheStateRequest, wanted func(tenant, model string) bool) *indexpb.ReplicaState {
	reporter := s.reporterOf(h)
	out := &indexpb.ReplicaState{ReplicaId: h.Replica, Rank: int32(h.Rank), Blocks: uint64(s.x.HoldingsOf(h, wanted)), Stats: reporter.statsOf()}
	var about *subject
	if reporter != nil {
		out.LastSeenMs, about = reporter.seen.Load(), reporter.about.Load()
	}
	everything := q.GetAllTenants() && q.GetModel() == ""
	if !everything && out.Blocks == 0 && (about == nil || !wanted(about.tenant, about.model)) {
		return nil
	}
	return out
}
