package simulator

import (
	"math"
	"slices"
)

// These are rivals as of November 2026, with their defaults.

// speculated is how long routers that follow events expect what they have sent, in seconds:
// llm-d's speculativeIndexing (its guides turn it on), vllm-router's speculative_ttl.
const speculated = 2.0

// llmdAffinity is llm-d's default since v0.10: prefix-cache-affinity-filter and, of those that
// it keeps, token-load-scorer, or active-request-scorer for traffic of long answers (llm-d-router
// 066c20e, pkg/epp/framework/plugins/scheduling: filter/prefixcacheaffinity/plugin.go,
// scorer/tokenload/token_load.go, scorer/activerequest/active_request.go). Matches are by events.
func llmdAffinity(requests bool) func(s *Sim) Policy {
	const threshold, gate, most = 0.8, 15928 * 18, 4194304
	return func(s *Sim) Policy {
		return speculating(s, func(now float64, r *Request) int {
			st, matched := s.router, s.router.matches(r.Blocks, true, now)
			sticky := func(i int) bool {
				return float64(matched[i]) >= threshold*float64(max(1, len(r.Blocks)))
			}
			least := map[bool]float64{true: math.Inf(1), false: math.Inf(1)}
			for i, n := range st.uncached {
				least[sticky(i)] = min(least[sticky(i)], float64(n))
			}
			narrowed := !math.IsInf(least[true], 1) && (math.IsInf(least[false], 1) || least[true]-least[false] <= gate)
			at := s.least(func(i int) float64 {
				switch {
				case narrowed && !sticky(i):
					return math.MaxFloat64
				case requests:
					return float64(st.inFlight[i])
				}
				return float64(min(most, st.uncached[i]+r.Input-hit(matched[i], r.Input, s.block)))
			})
			r.uncached = r.Input - hit(matched[at], r.Input, s.block)
			return at
		})
	}
}

// speculating is a rival that expects what it has sent.
func speculating(s *Sim, route func(now float64, r *Request) int) Policy {
	return rival{s, route, func(now float64, r *Request) { s.router.expect(r.Replica, r.Blocks, now+speculated) }}
}

// lmetric is LMetric (arXiv 2603.15202): the tokens of the prefill that would be queued, times
// the batch with the request in it.
func lmetric(s *Sim) Policy {
	return rival{s, func(now float64, r *Request) int {
		st, matched := s.router, s.router.matches(r.Blocks, false, now)
		at := s.least(func(i int) float64 {
			return float64(st.uncached[i]+r.Input-hit(matched[i], r.Input, s.block)) * float64(st.inFlight[i]+1)
		})
		r.uncached = r.Input - hit(matched[at], r.Input, s.block)
		return at
	}, nil}
}

// ray is Ray Serve's PrefixCacheAffinityRouter (ray 06c16f2, python/ray/llm/_internal/serve/
// routing_policies/prefix_aware/prefix_aware_router.py): the longest match in its history, or
// the smallest tree if that is below a tenth; of several replicas the shortest queue. By default
// no load is imbalanced and nothing leaves the tree.
func ray(s *Sim) Policy {
	const threshold = 0.1
	h := newHistory(s.c.Replicas, 0)
	matched := make([]int, s.c.Replicas)
	return rival{s, func(_ float64, r *Request) int {
		for i := range matched {
			matched[i] = h.match(i, r.Blocks)
		}
		best := slices.Max(matched)
		fits := func(i int) bool { return matched[i] == best }
		if float64(best) < threshold*float64(len(r.Blocks)) || best == 0 {
			smallest := math.MaxInt
			for i := range h.seen {
				smallest = min(smallest, len(h.seen[i]))
			}
			fits = func(i int) bool { return len(h.seen[i]) == smallest }
		}
		return s.least(func(i int) float64 {
			if !fits(i) {
				return math.MaxFloat64
			}
			return float64(s.router.inFlight[i])
		})
	}, func(_ float64, r *Request) { h.add(r.Replica, r.Blocks) }}
}

// kvAware is vllm-router's kv_aware (router 71af994, src/policies/kv_aware.rs): the longest
// match by events and speculation, and the shortest queue where nothing matches. The wheel of
// 0.1.17 has a cost in its place, whose source is not public.
func kvAware(s *Sim) Policy {
	return speculating(s, func(now float64, r *Request) int {
		matched := s.router.matches(r.Blocks, true, now)
		if best := slices.Max(matched); best > 0 {
			for i := len(matched) - 1; ; i-- { // Rust's max_by_key returns the last of equals
				if matched[i] == best {
					return i
				}
			}
		}
		return slices.Index(s.router.inFlight, slices.Min(s.router.inFlight))
	})
}
