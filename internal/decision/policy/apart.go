package policy

// PrefillDecode prices a request whose prompt another replica computes. For each
// candidate D that may answer, the prompt is computed on D, or on the best P that can hand
// its KV cache to D, whichever costs less:
//
//	local  = W_D + (1+L)*P_D + Theta*a_D*P_D
//	remote = max(W_P + P_P + c + m*(input-h_D), S_D) + B_P + L*P_P + Theta*a_P*P_P
//
// W, P and L are TTFT's; B is its term of Beta, for the decode steps beside a prefill. P_P
// counts h_P, the match on P: D's match saves the transfer, not the prefill. c is the handover
// and m the time for each moved token, both learned by D. S_D is the step of prefill that D is
// at. a is the number of answers that run when the prefill begins, and wait for it: of all
// requests there, because those whose first token is still to come are ahead in the queue, but
// prefill legs and those whose KV cache is still to come from another replica. Both sides have
// D's other terms in common, B_D among them. Neither counts the prompts that will delay the
// request's own answer: about as many arrive during D's queue as are in it. Ties are local:
// with nothing queued and equal matches, a split only adds the handover. With a Theta of 0, so
// does a split whose P may answer itself: it is never cheaper than P alone.
type PrefillDecode struct {
	Theta float64 `yaml:"theta" unit:"factor"` // price of a second by which a prefill delays each answer
}

// What a move of a KV cache between two replicas takes until it is learned: an 8B model's at 10 GB/s.
const (
	Handover  = 0.05   // s from the end of the prefill
	Bandwidth = 75_000 // tokens a second from then on
)

// Partner is what a candidate may do in a split. It has the index of its Candidate.
type Partner struct {
	Class    int     `json:"class"`              // candidates of one class can hand KV caches to each other; 0 = to none
	Replica  int     `json:"replica"`            // ranks of one replica have equal numbers
	Prefills bool    `json:"prefills"`           // it may compute a prompt for another
	Handover float64 `json:"handover_seconds"`   // s from the end of a prefill until its KV cache begins to move to this one
	Token    float64 `json:"seconds_each_token"` // s for each moved token
}

// Crowd is the candidates for a request that may be split.
type Crowd struct {
	Cands    []Candidate
	Partners []Partner // what each candidate may do
	Answer   int       // the first Answer candidates may answer; the others only compute prompts
}

// MaxClasses bounds Partner.Class.
const MaxClasses = 8

// Price is what a request costs one way, in seconds. The terms sum to Total.
type Price struct {
	Queue    float64 `json:"queue"`              // wait until the prefill begins: for requests ahead, or for tokens to be loaded
	Prefill  float64 `json:"prefill"`            // prefill of the tokens that the replica has not cached
	Handover float64 `json:"handover,omitempty"` // handover and move of the KV cache
	Decoding float64 `json:"decoding"`           // decode steps of the answers beside it, of both replicas of a split
	Later    float64 `json:"later"`              // delay of the requests behind the prefill
	Harm     float64 `json:"harm"`               // delay of the answers on the replica
	Total    float64 `json:"total"`
}

// Compared is the outcome of PickApart for the best candidate, D.
type Compared struct {
	Split         bool  // P computes the prompt
	P             int32 // the best candidate for the prefill; -1 = no candidate can compute it for D
	Local, Remote Price // what the two cost; Remote only with a P
	Idle          bool  // it would not pay either if P had nothing to do
	Warm          bool  // it would not pay either if P had all cached, too
}

// rivals are the two best of a class to compute a prompt, on different replicas; -1 = none.
type rivals [2]int32

// PickApart is Pick for a request that may be split. Its time grows with the number of
// candidates as Pick's does: what P adds to the cost depends on D only by the class, and by
// being another replica.
func (s *Settings) PickApart(ranked []int32, n int, r Request, of Crowd, scores []Score) ([]int32, Compared) {
	start := len(ranked)
	cands, partners, answer := of.Cands, of.Partners, of.Answer
	if s.Policy != NameTTFT {
		return s.Pick(ranked, n, r, cands[:answer], scores[:answer]), Compared{P: -1}
	}
	t := &s.TTFT
	limits, awaiting := t.limits(cands[:answer])
	for i := answer; i < len(cands); i++ {
		awaiting += float64(cands[i].Awaiting)
	}
	lambda := t.lambda(awaiting, len(cands))
	best := [MaxClasses + 1]rivals{}
	for i := range best {
		best[i] = rivals{-1, -1}
	}
	for i := range cands {
		p := &partners[i]
		scores[i] = Score{Verdict: PrefillOnly}
		if p.Class == 0 || !p.Prefills || cands[i].Failing {
			continue
		}
		scores[i].Cost = s.price(r, &cands[i], lambda).Total + spread(r, &cands[i])
		best[p.Class].add(int32(i), partners, scores)
	}
	for i := range answer {
		c := &cands[i]
		local := t.score(r, c, lambda, 0) + s.harm(r, c)
		cost := local
		if p := best[partners[i].Class].beside(partners, i); p >= 0 {
			a := s.apart(r, &of, i, p, lambda)
			cost = min(local, local-a.Local.Total+a.Remote.Total)
		}
		scores[i] = Score{Cost: cost + spread(r, c), Verdict: verdict(c, limits.of(c))}
	}
	by := ranking{cands: cands[:answer], scores: scores, ordinal: r.Ordinal, live: true}
	ranked = by.best(ranked, n)
	if len(ranked) == start {
		return ranked, Compared{P: -1}
	}
	d := int(ranked[start])
	p := best[partners[d].Class].beside(partners, d)
	if p < 0 {
		return ranked, Compared{P: -1, Local: s.price(r, &cands[d], lambda)}
	}
	return ranked, s.apart(r, &of, d, p, lambda)
}

// add takes candidate i in, if it is one of the two best.
func (v *rivals) add(i int32, partners []Partner, scores []Score) {
	less := func(a, b int32) bool { return b < 0 || scores[a].Cost < scores[b].Cost }
	switch {
	case less(i, v[0]):
		if v[0] >= 0 && partners[v[0]].Replica != partners[i].Replica {
			v[1] = v[0]
		}
		v[0] = i
	case partners[v[0]].Replica != partners[i].Replica && less(i, v[1]):
		v[1] = i
	}
}

// beside returns the best for candidate d: not on its own replica. It returns -1 if there
// is none.
func (v *rivals) beside(partners []Partner, d int) int32 {
	if partners[d].Class == 0 {
		return -1
	}
	for _, p := range v {
		if p >= 0 && partners[p].Replica != partners[d].Replica {
			return p
		}
	}
	return -1
}

// apart compares a prefill on d with one on p.
func (s *Settings) apart(r Request, of *Crowd, d int, p int32, lambda float64) Compared {
	cands, at := of.Cands, &of.Partners[d]
	a := Compared{P: p, Local: s.price(r, &cands[d], lambda), Remote: s.price(r, &cands[p], lambda)}
	moved := float64(r.Input - max(0, min(cands[d].Match.Matched(), r.Input-1)))
	a.Remote.Handover = at.Handover + moved*at.Token
	wait := a.Remote.Queue + a.Remote.Prefill + a.Remote.Handover
	// Tokens are moved to d between its steps of prefill. Loads delay no move.
	step := min(cands[d].begins(0), cands[d].speed()*chunk*s.TTFT.PrefillToken)
	a.Remote.Queue += max(0, step-wait)
	a.Remote.Decoding += a.Local.Decoding
	a.Remote.sum()
	a.Split = a.Remote.Total < a.Local.Total
	a.Idle = a.Remote.Total-a.Remote.Queue >= a.Local.Total
	a.Warm = a.Remote.Handover >= a.Local.Total-a.Local.Queue-a.Local.Decoding
	return a
}

// chunk is the most tokens of prefill in a step: vLLM's default max_num_batched_tokens on
// large GPUs.
const chunk = 8192

func (p *Price) sum() { p.Total = p.Queue + p.Prefill + p.Handover + p.Decoding + p.Later + p.Harm }

// price is the price of a prefill on a candidate, without the handover.
func (s *Settings) price(r Request, c *Candidate, lambda float64) Price {
	held, load := c.Match.Loads()
	cost := c.speed() * s.TTFT.Prefill(r.Input, held)
	p := Price{Queue: c.begins(load), Prefill: cost, Decoding: s.TTFT.decoding(c), Later: lambda * (cost + load), Harm: s.harm(r, c)}
	p.sum()
	return p
}

// harm is the price of the delay of a candidate's answers by the prefill.
func (s *Settings) harm(r Request, c *Candidate) float64 {
	if s.PrefillDecode.Theta == 0 {
		return 0
	}
	return s.PrefillDecode.Theta * float64(max(0, c.InFlight-c.Apart)) * s.TTFT.Cost(r, c)
}

// Wait returns the expected seconds until the first token of a split request.
func (a *Compared) Wait() float64 { return a.Remote.Queue + a.Remote.Prefill + a.Remote.Handover }
