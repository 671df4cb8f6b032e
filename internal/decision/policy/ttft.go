package policy

import "math"

// TTFT ranks candidates by the cost of serving the request there, in seconds:
//
//	h = min(credited + loaded, input-1); u = input - h
//	P = speed * (PrefillToken*u + PrefillPair*u*(h + u/2))    the request's own prefill
//	R = loading of the tokens that lie below the GPU
//	W = max(Pending + Foreign, Room, Loading + R)             until the prefill begins
//	L = Lambda + Kappa * mean(Awaiting)                       price of its work to those behind
//	S = Space * (1+Lambda) * P * Reuse * share / (1 + (mean in flight / 4)^2)
//	O = Crowding                                              of Room, what the request's own tokens take
//	A = 1 + (Recent / mean(Recent) - 1) * n/(n + e)           its work of late beside the others', from 1/2 to 2; n = mean(RecentRequests); e = 5 + 15*w/(1+w), w = (mean in flight / 2)^2
//	D = (in flight - mean) / max(2, mean) / (1+w)             answers that stand still meanwhile, beside the others', from -1/2 to 1; mean of those in flight, w = (mean / 16)^2
//	F = Lambda * Reuse * N * (A-1) * w/(1+w)                  what will go on from a new prompt; w = (mean in flight / 16)^2
//	cost = W + (1+L+Lambda*(A-1)+D)*P + L*R + 3*L*O + S + F + speed*beta*DecodeToken*(Live+Stagger) - J/2
//
// The engine loads while it computes for other requests, one load after the other: Loading is
// the time until a new load begins.
//
// J is the prefill of the tokens that full attention holds there and other cache groups
// (windows, Mamba states) lack. vLLM computes them again, and then keeps the blocks that
// a prompt which diverges there needs. Without J such prompts never go to the replica of
// their common beginning, and no replica ever holds all groups of it.
//
// S is the prefill that evictions cost later: the share of what the candidate would evict that is
// expected to be used again (Candidate.Space), as often as stored tokens are (Request.Reuse). Only
// the difference to the least share counts: where all evict alike, nothing is added.
//
// A makes prompts that are new, or hardly cached, go where little prefill was sent: where one begins,
// those that go on from it will come too. Without A a beginning that many prompts share draws them to
// the replica that has it, and those keep returning there.
//
// D is the price for the answers that run on the candidate: they stand still while the prompt is computed,
// which no time to a first token shows. It counts less the more requests are in flight on all of them: then
// one request more or less makes no difference.
//
// N is the prefill of what no candidate holds of the prompt, if that is at least half of it. The prompts
// that go on from it, as many as Reuse says, will come to the replica where it begins: F counts their
// work there, too, where the replicas are full.
//
// O is to the room in a full cache what P is to the time of a replica: what the request takes from
// those that come later. A prompt that is cached takes its answer's tokens alone.
//
// Stagger lets caches that are full of growing answers fill up one after the other. Where all are
// equally full, all are full at the same time, and no candidate has room for a new prompt then: it
// waits behind answers that were preempted.
//
// Other routers have probably sent prefill that they have not reported yet
// (Request.Unreported). Each router adds a part of it to its candidates' costs, by a hash
// of its own. So routers that decide at the same instant choose differently among nearly
// equal candidates.
//
// Two guards on the requests in flight keep a hot prefix from piling up. Above
// Guard*mean+guardAdd a candidate is guarded out: without that, Kappa collapses
// on one hot prefix. A candidate whose match is still being computed, because
// an earlier request with this prefix is on its way there, is guarded out above
// BurstGuard*mean+burstAdd already: a burst of one prompt then warms every
// replica instead of queueing behind the first.
type TTFT struct {
	PrefillToken float64 `yaml:"prefill_token" unit:"seconds"` // prefill of an uncached token; the default is an 8B model on an H100
	PrefillPair  float64 `yaml:"prefill_pair" unit:"seconds"`  // prefill of a (query, key) pair of attention
	DecodeToken  float64 `yaml:"decode_token" unit:"seconds"`  // a decode step, for each token of context
	Lambda       float64 `yaml:"lambda" unit:"factor"`         // price of a request's prefill to later requests
	Kappa        float64 `yaml:"kappa" unit:"factor"`          // the same for each waiting request
	Guard        float64 `yaml:"guard" unit:"factor"`          // a replica with more than this times the mean in flight, plus 8, is passed over; 0 = off
	BurstGuard   float64 `yaml:"burst_guard" unit:"factor"`    // the same for one that still computes the match, plus 1.25
	Space        float64 `yaml:"space" unit:"factor"`          // price of tokens that a request evicts, in later prefill; 0 = none
	LoadToken    float64 `yaml:"load_token" unit:"seconds"`    // loading a token from below the GPU; 0 = learned
}

// junction is the share of the prefill that extends a match which other cache groups end, that
// is deducted from the cost. Without it such prompts scatter; up to 1 it makes no difference.
const junction = 0.5

// crowded is how many times more a second of Crowding costs those that come later than one of
// prefill: the room is taken until the answer ends. From 1 on it helps; above 4 answers of thousands
// of tokens pile up where their beginning is.
const crowded = 3

const (
	guardAdd    = 8    // requests that the guard adds to the mean
	burstAdd    = 1.25 // requests that the burst guard adds to it
	beta        = 20   // decode steps of running requests that a request pays for
	adapterLoad = 0.05 // seconds to load a LoRA adapter; evicting one takes as long again
)

// DefaultTTFT returns the constants of the simulations: an 8B model on one H100. Errors of
// a factor of two in them change mean TTFT by about 1 %. The burst guard is the widest that
// keeps the busiest of 8 replicas within 1.3 times the mean from the 64th request of a
// burst on.
func DefaultTTFT() TTFT {
	return TTFT{
		PrefillToken: 35e-6, PrefillPair: 1e-9, DecodeToken: 5.2e-8,
		Lambda: 3, Kappa: 0.7, Guard: 1.3, BurstGuard: 1.05, Space: 1,
	}
}

// Prefill returns the modelled prefill time in seconds of a prompt of input tokens
// of which hit are cached. The last token is always computed.
func (t *TTFT) Prefill(input, hit int) float64 {
	h := float64(max(0, min(hit, input-1)))
	u := float64(input) - h
	return t.PrefillToken*u + t.PrefillPair*u*(h+u/2)
}

// Cost returns the prefill time in seconds of a request on a candidate, at its speed.
func (t *TTFT) Cost(r Request, c *Candidate) float64 {
	held, _ := c.Match.Loads()
	return c.speed() * t.Prefill(r.Input, held)
}

// Saved returns the prefill time in seconds that a candidate's match on its GPU saves a
// request there, at its speed.
func (t *TTFT) Saved(r Request, c *Candidate) float64 {
	return c.speed() * (t.Prefill(r.Input, 0) - t.Prefill(r.Input, c.Match.Credited()))
}

// Wait returns the expected time until the request's first token on a candidate, in
// seconds.
func (t *TTFT) Wait(r Request, c *Candidate) float64 {
	held, load := c.Match.Loads()
	return c.begins(load) + c.speed()*t.Prefill(r.Input, held)
}

// begins returns the seconds until the prefill of a request begins, which loads for load
// seconds: the prefill ahead of it goes on meanwhile.
func (c *Candidate) begins(load float64) float64 {
	queue := max(c.Pending+c.Foreign, c.Room)
	if load == 0 {
		return queue
	}
	return max(queue, c.Loading+load)
}

func (c *Candidate) speed() float64 {
	if c.Speed <= 0 {
		return 1
	}
	return c.Speed
}

// Pick appends to ranked the indexes of at most n candidates, best first, and fills
// scores, which has cands' length. Guarded and failing candidates come last, so the list
// is empty only without candidates.
func (t *TTFT) Pick(ranked []int32, n int, r Request, cands []Candidate, scores []Score) []int32 {
	limits, awaiting := t.limits(cands)
	lambda, space, work := t.lambda(awaiting, len(cands)), t.space(r, limits.mean), workOf(cands, limits.mean)
	later := t.later(r, limits.mean, cands)
	for i := range cands {
		c := &cands[i]
		beyond := work.beyond(c)
		scores[i] = Score{Cost: t.score(r, c, lambda, space*c.Space+t.Lambda*beyond+limits.delayed(c)) + later*beyond + spread(r, c), Verdict: verdict(c, limits.of(c))}
	}
	by := ranking{cands: cands, scores: scores, ordinal: r.Ordinal, live: true}
	return by.best(ranked, n)
}

// limits are the requests in flight beyond which a candidate is guarded out: burst while
// its match is still being computed; the mean of the candidates that do not fail; and the D of one request
// more than that.
type limits struct{ all, burst, mean, delay float64 }

// of returns the limit of a candidate.
func (l *limits) of(c *Candidate) float64 {
	if c.Match[Coming].counts() > 0 {
		return l.burst
	}
	return l.all
}

// limits returns the limits, and the number of requests whose first token has not come.
func (t *TTFT) limits(cands []Candidate) (l limits, awaiting float64) {
	var inFlight, working float64
	for i := range cands {
		awaiting += float64(cands[i].Awaiting)
		if !cands[i].Failing { // one that fails has little in flight
			inFlight += float64(cands[i].InFlight)
			working++
		}
	}
	mean := inFlight / max(1, working)
	l = limits{math.Inf(1), math.Inf(1), mean, (1 - fullness(mean, busy)) / max(idle, mean)}
	if t.Guard > 0 {
		l.all = t.Guard*mean + guardAdd
		l.burst = l.all
	}
	if t.BurstGuard > 0 {
		l.burst = min(l.all, t.BurstGuard*mean+burstAdd)
	}
	return l, awaiting
}

// delayed returns D of a candidate.
func (l *limits) delayed(c *Candidate) float64 {
	return within((float64(c.InFlight) - l.mean) * l.delay)
}

// lambda returns L for so many waiting requests on so many candidates.
func (t *TTFT) lambda(awaiting float64, candidates int) float64 {
	return t.Lambda + t.Kappa*awaiting/float64(max(1, candidates))
}

// calm is the mean number of requests in flight at which space costs half: the fuller the
// replicas are, the more an even load counts.
const calm = 4

// space returns the price of storing a request's tokens where all that is evicted for them will
// be used again, in its prefills; inFlight is the mean over the candidates.
func (t *TTFT) space(r Request, inFlight float64) float64 {
	return t.Space * (1 + t.Lambda) * r.Reuse * (1 - fullness(inFlight, calm))
}

// fullness returns how full the replicas are with so many requests in flight, from 0 to 1, and 1/2 at half.
func fullness(inFlight, half float64) float64 {
	f := inFlight / half
	return f * f / (1 + f*f)
}

// busy is the mean number of requests in flight at which half of the work of later prompts counts
// where their beginning is placed: with few in flight, waiting is rare and an even load gains less.
const busy = 16

// later returns the price of the prompts that will go on from a request's prompt, for a candidate that
// was sent twice the mean lately; 0 if one holds half of the prompt already.
func (t *TTFT) later(r Request, inFlight float64, cands []Candidate) float64 {
	if r.Reuse == 0 {
		return 0
	}
	most := 0
	for i := range cands {
		held, _ := cands[i].Match.Loads()
		most = max(most, held)
	}
	n := t.Prefill(r.Input, most)
	if n < t.Prefill(r.Input, 0)/2 {
		return 0
	}
	return t.Lambda * r.Reuse * n * fullness(inFlight, busy)
}

// A difference in the replicas' recent work counts half after even requests, where many are in flight.
// Where hardly any is, it does after evenIdle: a replica that lacks a popular beginning would stay empty.
// With idle in flight in the mean, the number of requests lies in the middle.
const (
	even     = 20
	evenIdle = 5
	idle     = 2
)

// work is what the candidates were sent lately, without those that fail.
type work struct{ mean, trust float64 }

// workOf returns the candidates' work; inFlight is their mean number of requests in flight.
func workOf(cands []Candidate, inFlight float64) work {
	var prefill, requests, n float64
	for i := range cands {
		if c := &cands[i]; !c.Failing {
			prefill, requests, n = prefill+c.Recent, requests+c.RecentRequests, n+1
		}
	}
	if prefill == 0 {
		return work{}
	}
	return work{mean: prefill / n, trust: requests / (requests + (evenIdle+(even-evenIdle)*fullness(inFlight, idle))*n)}
}

// beyond returns how much more than the mean a candidate was sent, as a share of the mean, as far as the
// difference is trusted.
func (w *work) beyond(c *Candidate) float64 {
	if w.mean == 0 {
		return 0
	}
	return within((c.Recent/w.mean - 1) * w.trust)
}

// within bounds how much more than the mean's share counts: at most half of it less or all of it more. A
// replica that has just come shall not draw a queue.
func within(more float64) float64 { return min(1, max(-0.5, more)) }

// score returns the cost of a candidate, whose prefill has a price of lambda and more.
func (t *TTFT) score(r Request, c *Candidate, lambda, more float64) float64 {
	held, load := c.Match.Loads()
	cost := c.begins(load) + (1+lambda+more)*c.speed()*t.Prefill(r.Input, held) + lambda*(load+crowded*c.Crowding) + t.decoding(c)
	if cut := int(c.Match[Cut].Tokens); cut > 0 {
		has := c.Match.Matched()
		cost -= junction * c.speed() * (t.Prefill(r.Input, has) - t.Prefill(r.Input, has+cut))
	}
	if c.Adapter == AdapterEvicted {
		cost += 2 * adapterLoad
	}
	return cost
}

// decoding returns the seconds that decode steps of a candidate's answers take from a request.
func (t *TTFT) decoding(c *Candidate) float64 {
	return c.speed() * beta * t.DecodeToken * (c.Live + c.Stagger)
}

// spreadFactor bounds how many times the unreported prefill a candidate may cost more on
// one router than on another. Simulated with 20 ms between four and eight routers, 1 leaves
// half of the cost of deciding apart, 4 a fifth to a third.
const spreadFactor = 4

// spread makes routers that decide at the same instant prefer different ones of nearly
// equal candidates: each adds a share of the unreported prefill to the costs, by its own
// hash.
func spread(r Request, c *Candidate) float64 {
	if r.Unreported <= 0 {
		return 0
	}
	return spreadFactor * r.Unreported * float64(mix(r.Ordinal^c.Hash)>>11) / (1 << 53)
}

func verdict(c *Candidate, limit float64) Verdict {
	switch {
	case c.Failing:
		return Failing
	case float64(c.InFlight) > limit:
		return LoadGuarded
	}
	return Ranked
}
