package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// partnersOf gives candidates to one class, each its own replica with equal prices.
func partnersOf(n int) []Partner {
	out := make([]Partner, n)
	for i := range out {
		out[i] = Partner{Class: 1, Replica: i, Prefills: true, Handover: 0.05, Token: 1.0 / 75_000}
	}
	return out
}

func pickApart(s *Settings, r Request, cands []Candidate, partners []Partner, answer int) (int32, Compared) {
	ranked, a := s.PickApart(nil, 1, r, Crowd{cands, partners, answer}, make([]Score, len(cands)))
	return ranked[0], a
}

// TestNobodySplitsAtRest: without work in the queues, and with equal matches, a split never
// pays, whatever the price of answers.
func TestNobodySplitsAtRest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		s := DefaultSettings()
		s.PrefillDecode.Theta = rng.Float64()
		cands := make([]Candidate, 2+rng.IntN(6))
		held := rng.IntN(5000)
		for i := range cands {
			cands[i] = Candidate{Hash: rng.Uint64(), Match: gpu(held, held)}
		}
		r := Request{Input: 1 + rng.IntN(100_000), Ordinal: rng.Uint64()}
		if _, a := pickApart(&s, r, cands, partnersOf(len(cands)), 1+rng.IntN(len(cands)-1)); a.Split {
			t.Fatalf("%d tokens, %d held: %+v", r.Input, held, a)
		}
	}
}

// TestNothingIsSplitForAnswers: where answers that wait have no price, no replica computes a
// prompt for another one that it could answer itself, whatever the two have queued and cached.
func TestNothingIsSplitForAnswers(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		s := DefaultSettings()
		s.TTFT.Guard, s.TTFT.BurstGuard = 0, 0
		cands := make([]Candidate, 2+rng.IntN(6))
		for i := range cands {
			held := rng.IntN(20_000)
			cands[i] = Candidate{Hash: rng.Uint64(), Match: gpu(held, held), Load: Load{Pending: rng.Float64() * float64(rng.IntN(3)), InFlight: rng.IntN(60), Live: rng.Float64() * 1e6, Speed: 0.5 + rng.Float64()}}
		}
		if _, a := pickApart(&s, Request{Input: 20_000, Ordinal: rng.Uint64()}, cands, partnersOf(len(cands)), len(cands)); a.Split {
			t.Fatalf("split: %+v", a)
		}
	}
}

// TestWhenASplitPays: a busy replica hands a long cold prompt over, unless little of it is
// left to compute, the partner is as busy, or there is none.
func TestWhenASplitPays(t *testing.T) {
	busy := Candidate{Hash: 1, Load: Load{Pending: 2, InFlight: 20, Awaiting: 4}}
	for name, tt := range map[string]struct {
		theta float64
		d, p  Candidate
		class int
		split bool
		warm  bool
		idle  bool
	}{
		"a busy decoder":               {d: busy, p: Candidate{Hash: 2}, class: 1, split: true},
		"its partner is as busy":       {d: busy, p: Candidate{Hash: 2, Load: Load{Pending: 2.1}}, class: 1},
		"no partner":                   {d: busy, p: Candidate{Hash: 2}, class: 2, idle: true},
		"at rest":                      {d: Candidate{Hash: 1}, p: Candidate{Hash: 2}, class: 1, idle: true},
		"a busy decoder, long answers": {d: Candidate{Hash: 1, Load: Load{Pending: 2, InFlight: 20, Live: 1e6}}, p: Candidate{Hash: 2}, class: 1, split: true},
		"a partner with long answers":  {d: Candidate{Hash: 1, Load: Load{Pending: 0.3}}, p: Candidate{Hash: 2, Load: Load{Live: 1e6}}, class: 1, idle: true},
		"running answers, no theta":    {d: Candidate{Hash: 1, Load: Load{InFlight: 50}}, p: Candidate{Hash: 2}, class: 1, idle: true},
		"running answers":              {theta: 1, d: Candidate{Hash: 1, Load: Load{InFlight: 50}}, p: Candidate{Hash: 2}, class: 1, split: true},
		"answers that begin before":    {theta: 1, d: Candidate{Hash: 1, Load: Load{InFlight: 50, Awaiting: 50}}, p: Candidate{Hash: 2}, class: 1, split: true},
		"legs for other replicas":      {theta: 1, d: Candidate{Hash: 1, Load: Load{InFlight: 50, Awaiting: 50, Apart: 50}}, p: Candidate{Hash: 2}, class: 1, idle: true},
		"legs on the partner":          {theta: 1, d: Candidate{Hash: 1, Load: Load{InFlight: 50}}, p: Candidate{Hash: 2, Load: Load{InFlight: 50, Awaiting: 50, Apart: 50}}, class: 1, split: true},
		"running answers on both":      {theta: 1, d: Candidate{Hash: 1, Load: Load{InFlight: 50}}, p: Candidate{Hash: 2, Load: Load{InFlight: 50}}, class: 1, idle: true},
		"the decoder has the prompt":   {theta: 1, d: Candidate{Hash: 1, Match: gpu(9990, 9990), Load: Load{InFlight: 50}}, p: Candidate{Hash: 2}, class: 1, warm: true, idle: true},
		"the partner fails":            {d: busy, p: Candidate{Hash: 2, Load: Load{Failing: true}}, class: 1, idle: true},
		"the partner has the prompt":   {d: busy, p: Candidate{Hash: 2, Match: gpu(9000, 9000)}, class: 1, split: true},
		"the partner is twice slower":  {d: Candidate{Hash: 1, Load: Load{Pending: 0.2}}, p: Candidate{Hash: 2, Load: Load{Speed: 2}}, class: 1, idle: true},
	} {
		s := DefaultSettings()
		s.PrefillDecode.Theta = tt.theta
		partners := partnersOf(2)
		partners[1].Class = tt.class
		_, a := pickApart(&s, Request{Input: 10_000}, []Candidate{tt.d, tt.p}, partners, 1)
		if a.Split != tt.split || a.P >= 0 && (a.Warm != tt.warm || a.Idle != tt.idle) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestPickApartIsTheBestPair: looking at each class's two best is as good as looking at
// every pair.
func TestPickApartIsTheBestPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 2000 {
		s := DefaultSettings()
		s.PrefillDecode.Theta = rng.Float64()
		s.TTFT.Guard, s.TTFT.BurstGuard = 0, 0
		n := 2 + rng.IntN(8)
		answer := 1 + rng.IntN(n)
		cands, partners := make([]Candidate, n), partnersOf(n)
		for i := range cands {
			held := rng.IntN(8000)
			cands[i] = Candidate{Hash: rng.Uint64(), Match: gpu(held, held), Load: Load{Pending: rng.Float64() * 2, Awaiting: rng.IntN(4), Live: rng.Float64() * 1e5, Speed: 0.5 + rng.Float64()}}
			cands[i].InFlight = cands[i].Awaiting + rng.IntN(60)
			partners[i].Class, partners[i].Replica, partners[i].Prefills = rng.IntN(3), i/2, rng.IntN(4) > 0
		}
		r := Request{Input: 8000 + rng.IntN(20_000)}
		_, awaiting := s.TTFT.limits(cands)
		lambda := s.TTFT.lambda(awaiting, n)
		least := math.Inf(1)
		for d := range answer {
			base := s.TTFT.score(r, &cands[d], lambda, 0)
			local := s.price(r, &cands[d], lambda)
			least = min(least, base+local.Harm)
			for p := range cands {
				if partners[p].Class != 0 && partners[p].Class == partners[d].Class && partners[p].Prefills && partners[p].Replica != partners[d].Replica {
					a := s.apart(r, &Crowd{cands, partners, answer}, d, int32(p), lambda)
					// A step of the decoder that hides the partner's queue makes pairs equal
					// that differ in it.
					least = min(least, base-(a.Local.Total-a.Local.Harm)+a.Remote.Total)
				}
			}
		}
		scores := make([]Score, n)
		ranked, _ := s.PickApart(nil, 1, r, Crowd{cands, partners, answer}, scores)
		if got := scores[ranked[0]].Cost; got > least+0.3 || got < least-1e-9 {
			t.Fatalf("costs %g, the best pair %g", got, least)
		}
	}
}

// TestLoadsDelayNothingThatIsMoved: a candidate that loads tokens computes nothing meanwhile, so
// what another one computes for it waits for no step, and delays no answer behind one.
func TestLoadsDelayNothingThatIsMoved(t *testing.T) {
	s := DefaultSettings()
	s.PrefillDecode.Theta = 1
	d := Candidate{Hash: 1, Match: gpu(0, 0).with(CPU, 20_000, 1e-3), Load: Load{Loading: 30}}
	_, a := pickApart(&s, Request{Input: 20_001, Ordinal: 1}, []Candidate{d, {Hash: 2, Match: gpu(20_000, 20_000)}}, partnersOf(2), 1)
	if !a.Split || a.Local.Queue < 49.9 || a.Remote.Queue != 0 || a.Remote.Harm != 0 {
		t.Errorf("%+v, want a split without a wait", a)
	}
}

// TestASplitWaitsForTheDecoder: its answer is slowed by the answers on both replicas, and what is
// moved waits for the end of the step that the decoder computes, at most a whole one, and not for
// what the move takes longer than.
func TestASplitWaitsForTheDecoder(t *testing.T) {
	s := DefaultSettings()
	step := chunk * s.TTFT.PrefillToken
	for name, tt := range map[string]struct {
		d      Candidate
		queue  float64
		beside bool // the decoder has answers in flight
	}{
		"at rest":                {d: Candidate{Hash: 1}},
		"answers":                {d: Candidate{Hash: 1, Load: Load{InFlight: 20, Live: 1e6}}, beside: true},
		"a long queue":           {d: Candidate{Hash: 1, Load: Load{Pending: 9 * step}}, queue: step},
		"a slow decoder's queue": {d: Candidate{Hash: 1, Load: Load{Pending: 9 * step, Speed: 2}}, queue: 2 * step},
		"a part of a step":       {d: Candidate{Hash: 1, Load: Load{Pending: step / 2}}, queue: step / 2},
	} {
		p := Candidate{Hash: 2, Match: gpu(99, 99), Load: Load{InFlight: 10, Live: 5e5}}
		r, partners := Request{Input: 100}, partnersOf(2)
		for i := range partners {
			partners[i].Handover, partners[i].Token = 0, 0
		}
		a := s.apart(r, &Crowd{[]Candidate{tt.d, p}, partners, 1}, 0, 1, 0)
		own, its := s.TTFT.decoding(&tt.d), s.TTFT.decoding(&p)
		if (own > 0) != tt.beside || its == 0 || math.Abs(a.Remote.Decoding-own-its) > 1e-12 {
			t.Errorf("%s: decode steps of %g s, want %g s and %g s", name, a.Remote.Decoding, own, its)
		}
		if want := max(0, tt.queue-a.Remote.Prefill); math.Abs(a.Remote.Queue-want) > 1e-12 {
			t.Errorf("%s: waits for %g s, want %g s", name, a.Remote.Queue, want)
		}
		if sum := a.Remote.Queue + a.Remote.Prefill + a.Remote.Decoding + a.Remote.Later + a.Remote.Harm; math.Abs(a.Remote.Total-sum) > 1e-12 {
			t.Errorf("%s: a total of %g s of terms of %g s", name, a.Remote.Total, sum)
		}
	}
}
