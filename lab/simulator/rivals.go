package simulator

import (
	"math"
	"slices"
)

// Rivals are the published policies with their defaults, from their code or documentation,
// and two bounds: "oracle" is greedy on the engines' true state; with Config.Pooled it is
// the bound of one shared cache.
var Rivals = map[string]func(s *Sim) Policy{
	"p2c":     func(s *Sim) Policy { return rival{s, func(float64, *Request) int { return s.twoChoices() }, nil} }, // Envoy LEAST_REQUEST
	"least":   func(s *Sim) Policy { return rival{s, leastRequest(s), nil} },
	"sticky":  sticky,
	"localai": localAI,
	"sglang":  sgLang,
	"aibrix":  aiBrix,
	"gie":     gie,
	"llm-d":   llmd,
	"dynamo":  dynamo,
	"oracle":  oracle,

	"llm-d-tokens":   llmdAffinity(false),
	"llm-d-requests": llmdAffinity(true),
	"lmetric":        lmetric,
	"ray":            ray,
	"vllm-router":    kvAware,
}

// rival is a policy made of two functions.
type rival struct {
	s      *Sim
	route  func(now float64, r *Request) int
	routed func(now float64, r *Request) // nil = nothing to note
}

func (p rival) Route(now float64, r *Request) int { return p.route(now, r) }
func (p rival) Routed(now float64, r *Request) {
	if p.routed != nil {
		p.routed(now, r)
	}
}
func (rival) First(float64, *Request)       {}
func (rival) Done(float64, *Request)        {}
func (rival) Stored(float64, int, []int32)  {}
func (rival) Removed(float64, int, []int32) {}
func (rival) Scraped(float64, []Page)       {}

// Ignored has a Policy's observations, and notes none. What embeds it has a Route of its own.
type Ignored struct{ rival }

// sticky keeps the requests of a session on one replica; a new session goes to the one with the
// fewest sessions. It is told what no router of prompts knows.
func sticky(s *Sim) Policy {
	at, sessions := map[int]int{}, make([]int, s.c.Replicas)
	return rival{s, func(_ float64, r *Request) int {
		to, ok := at[r.Session]
		if !ok {
			to = s.least(func(i int) float64 { return float64(sessions[i]) })
			at[r.Session] = to
			sessions[to]++
		}
		return to
	}, nil}
}

// least returns the replica with the smallest value, among equals one at random.
func (s *Sim) least(value func(i int) float64) int { return s.leastOf(s.c.Replicas, value) }

// leastOf is least among the first replicas.
func (s *Sim) leastOf(replicas int, value func(i int) float64) int {
	best, at, n := math.Inf(1), -1, 0
	for i := range replicas {
		switch v := value(i); {
		case v < best-1e-12:
			best, at, n = v, i, 1
		case v <= best+1e-12:
			if n++; s.rng.IntN(n) == 0 {
				at = i
			}
		}
	}
	return at
}

func leastRequest(s *Sim) func(float64, *Request) int {
	return func(float64, *Request) int {
		return s.least(func(i int) float64 { return float64(s.router.inFlight[i]) })
	}
}

// history is an index of routed blocks by replica. It evicts the least recently used ones
// first.
type history struct {
	most int // blocks per replica; 0 = no limit
	seen []map[int32]int64
	tick int64
}

func newHistory(replicas, most int) *history {
	h := &history{most: most}
	for range replicas {
		h.seen = append(h.seen, map[int32]int64{})
	}
	return h
}

func (h *history) match(replica int, blocks []int32) int {
	for i, b := range blocks {
		if _, ok := h.seen[replica][b]; !ok {
			return i
		}
	}
	return len(blocks)
}

func (h *history) add(replica int, blocks []int32) {
	seen := h.seen[replica]
	for i := len(blocks) - 1; i >= 0; i-- {
		h.tick++
		seen[blocks[i]] = h.tick
	}
	if h.most == 0 || len(seen) <= h.most+h.most/8+64 {
		return
	}
	ticks := make([]int64, 0, len(seen))
	for _, t := range seen {
		ticks = append(ticks, t)
	}
	slices.Sort(ticks)
	oldest := ticks[len(ticks)-h.most]
	for b, t := range seen {
		if t < oldest {
			delete(seen, b)
		}
	}
}

// localAI is LocalAI's prefix routing: a history tree in which the last writer
// owns a node, in-flight guards, and the least recency-decayed tree otherwise.
// It reads the first 16 KiB of a prompt, 8 of the traces' blocks.
func localAI(s *Sim) Policy {
	const depth, minMatch, abs, rel, ttl, halfLife = 8, 0.3, 2, 1.5, 300.0, 120.0
	type owner struct {
		replica int
		seen    float64
	}
	owners, weights := map[int32]owner{}, make([]float64, s.c.Replicas)
	chain := func(r *Request) []int32 { return r.Blocks[:min(depth, len(r.Blocks))] }
	return rival{s, func(now float64, r *Request) int {
		hot, matched := -1, 0
		for i, b := range chain(r) {
			o, ok := owners[b]
			if !ok || now-o.seen > ttl {
				break
			}
			hot, matched = o.replica, i+1
		}
		in := s.router.inFlight
		least := slices.Min(in)
		fits := func(i int) bool { return in[i] <= least+abs && float64(in[i]) <= float64(least)*rel+1 }
		if hot >= 0 && float64(matched) >= minMatch*float64(len(chain(r))) && fits(hot) {
			return hot
		}
		best := -1
		for i := range in {
			if fits(i) && (best < 0 || weights[i] < weights[best]) {
				best = i
			}
		}
		return best
	}, func(now float64, r *Request) {
		for _, b := range chain(r) {
			if o, ok := owners[b]; ok {
				weights[o.replica] -= math.Exp2(o.seen / halfLife)
			}
			owners[b] = owner{r.Replica, now}
			weights[r.Replica] += math.Exp2(now / halfLife)
		}
	}}
}

// sgLang is the cache_aware policy of SGLang's router.
func sgLang(s *Sim) Policy {
	const threshold, abs, rel = 0.3, 64, 1.5
	h := newHistory(s.c.Replicas, 0)
	return rival{s, func(_ float64, r *Request) int {
		in := s.router.inFlight
		least, most := slices.Min(in), slices.Max(in)
		if most-least > abs && float64(most) > rel*float64(least) {
			return s.least(func(i int) float64 { return float64(in[i]) })
		}
		best, at := 0, -1
		for i := range in {
			switch k := h.match(i, r.Blocks); {
			case k > best:
				best, at = k, i
			case k == best && k > 0 && s.rng.IntN(2) == 0:
				at = i
			}
		}
		if at >= 0 && float64(best) > threshold*float64(len(r.Blocks)) {
			return at
		}
		return s.least(func(i int) float64 { return float64(len(h.seen[i])) })
	}, func(_ float64, r *Request) { h.add(r.Replica, r.Blocks) }}
}

// aiBrix is AIBrix's prefix-cache policy.
func aiBrix(s *Sim) Policy {
	const abs, deviations, entries = 8, 1.0, 3000
	h := newHistory(s.c.Replicas, entries)
	return rival{s, func(now float64, r *Request) int {
		in := s.router.inFlight
		least := leastRequest(s)
		if slices.Max(in)-slices.Min(in) > abs {
			return least(now, r)
		}
		mean, variance, n := 0.0, 0.0, float64(len(in))
		for _, v := range in {
			mean += float64(v) / n
		}
		for _, v := range in {
			variance += (float64(v) - mean) * (float64(v) - mean) / n
		}
		best, at := 0, -1
		for i := range in {
			k := h.match(i, r.Blocks)
			if k > 0 && float64(in[i]) <= mean+deviations*math.Sqrt(variance) && (k > best || k == best && in[i] < in[at]) {
				best, at = k, i
			}
		}
		if at < 0 {
			return least(now, r)
		}
		return at
	}, func(_ float64, r *Request) { h.add(r.Replica, r.Blocks) }}
}

// weighted is the scorer of the Gateway API inference extension and of llm-d:
// queue, KV usage and prefix share, by weight, from scraped metrics.
func (s *Sim) weighted(queue, usage, prefix float64, matched []int, of int) int {
	least, most := math.MaxInt, 0
	for i := range s.pages {
		least, most = min(least, s.pages[i].Waiting), max(most, s.pages[i].Waiting)
	}
	return s.least(func(i int) float64 {
		q := 1.0
		if most > least {
			q = float64(most-s.pages[i].Waiting) / float64(most-least)
		}
		return -(queue*q + usage*(1-s.pages[i].KVUsage) + prefix*float64(matched[i])/float64(max(1, of)))
	})
}

// gie is the inference extension's default: weights 2, 2 and 3, and the prefix
// from history, 256 blocks of 16 tokens of a prompt and 31,250 per replica.
func gie(s *Sim) Policy {
	deepest, entries := max(1, 256*16/s.block), max(1, 31250*16/s.block)
	h, matched := newHistory(s.c.Replicas, entries), make([]int, s.c.Replicas)
	cut := func(r *Request) []int32 { return r.Blocks[:min(deepest, len(r.Blocks))] }
	return rival{s, func(_ float64, r *Request) int {
		for i := range matched {
			matched[i] = h.match(i, cut(r))
		}
		return s.weighted(2, 2, 3, matched, len(cut(r)))
	}, func(_ float64, r *Request) { h.add(r.Replica, cut(r)) }}
}

// llmd is llm-d's precise prefix routing as it was before v0.10: weights 1, 1 and 2, exact events.
func llmd(s *Sim) Policy {
	return rival{s, func(now float64, r *Request) int {
		return s.weighted(1, 1, 2, s.router.matches(r.Blocks, false, now), len(r.Blocks))
	}, nil}
}

// dynamo is Dynamo's KV router: prefill blocks to compute and decode blocks. 1.6 has the same
// formula by default (dynamo 07a6c9c, lib/kv-router/src/scheduling/selector/default.rs: credit
// and scale 1, no decay, no weight of requests, temperature 0, no prediction).
func dynamo(s *Sim) Policy {
	return rival{s, func(now float64, r *Request) int {
		matched := s.router.matches(r.Blocks, false, now)
		at := s.least(func(i int) float64 {
			active := s.router.active[i]
			blocks := len(active)
			for _, b := range r.Blocks {
				if _, ok := active[b]; !ok {
					blocks++
				}
			}
			u := r.Input - hit(matched[i], r.Input, s.block)
			return float64(s.router.uncached[i]+u)/float64(s.block) + float64(blocks)
		})
		r.uncached = r.Input - hit(matched[at], r.Input, s.block)
		return at
	}, nil}
}

// oracle is greedy on the true state of the engines.
func oracle(s *Sim) Policy {
	return rival{s, func(now float64, r *Request) int {
		return s.least(func(i int) float64 {
			e, d := s.engines[i], s.engines[i].Scheduler.(*dense) // an oracle cannot read other schedulers' caches
			h := hit(d.coming(r.Blocks), r.Input, s.block)
			return e.wait(d, now) + e.slow*e.hw.Prefill(r.Input-h, h) + 1e-9*float64((d.cache.pages-d.cache.free)*d.cache.page)
		})
	}, nil}
}

// Reference returns the score of policy.TTFT on the simulator's own state: every first
// token at once, true constants. `lab policy` lacks the part of this that a router cannot
// observe.
func Reference(lambda, beta, kappa, guard, add float64) func(s *Sim) Policy {
	return func(s *Sim) Policy {
		st, hw := s.router, &s.c.Hardware
		return reference{rival{s, func(now float64, r *Request) int {
			matched := st.matches(r.Blocks, true, now)
			var inFlight, awaiting int
			for i := range st.inFlight {
				inFlight, awaiting = inFlight+st.inFlight[i], awaiting+st.awaiting[i]
			}
			n := float64(s.c.Replicas)
			l, limit := lambda+kappa*float64(awaiting)/n, guard*float64(inFlight)/n+add
			at := s.least(func(i int) float64 {
				h := hit(matched[i], r.Input, s.block)
				v := st.pending[i] + (1+l)*hw.Prefill(r.Input-h, h) + beta*hw.DecodeToken*st.live[i]
				if float64(st.inFlight[i]) > limit {
					v += 1e6
				}
				return v
			})
			h := hit(matched[at], r.Input, s.block)
			r.uncached, r.cost = r.Input-h, hw.Prefill(r.Input-h, h)
			return at
		}, func(now float64, r *Request) { st.expect(r.Replica, r.Blocks, now+600) }}}
	}
}

type reference struct{ rival }

func (p reference) First(now float64, r *Request) {
	until := now + 0.05 + p.s.c.EventDelay
	for _, b := range r.Blocks {
		if coming := p.s.router.coming[r.Replica]; coming[b] > until {
			coming[b] = until
		}
	}
}
