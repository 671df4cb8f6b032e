package simulator

import (
	"math/rand/v2"
	"slices"
)

// lightBlock is the tokens of a block of a light load.
const lightBlock = 16

// Light is a load of sessions that share a head and grow with each turn, on a few replicas with
// few requests in flight.
type Light struct {
	Replicas int
	InFlight int  // requests at a time
	Sessions int  // open at a time, each with one turn in turn
	Head     int  // tokens that all share
	Own      int  // further tokens of a first turn
	Growth   int  // tokens that each turn adds
	Turns    int  // of a session, before a new one takes its place
	Shuffled bool // the sessions take turns in a random order
	Aligned  bool // all sessions begin at once, and none follows them
	Capacity int  // tokens of a replica's cache
	Requests int
}

// LightFits are the sizes of a cache, by the name of what fits.
var LightFits = []string{"one", "all", "tight"}

// Fit sets the capacity: "one" cache holds everything, or "all" together do, with room to
// spare, or "tight" without.
func (l *Light) Fit(name string) {
	all := float64(l.Sessions * (l.Own + l.Growth*(l.Turns-1)/2))
	switch name {
	case "one":
		l.Capacity = int(1.2 * float64(l.Head+l.Sessions*(l.Own+l.Growth*(l.Turns-1))))
	case "all":
		l.Capacity = l.Head + int(1.3*all/float64(l.Replicas))
	case "tight":
		l.Capacity = l.Head + int(1.05*all/float64(l.Replicas))
	}
}

// Trace returns the requests, by seed.
func (l *Light) Trace(seed uint64) *Trace {
	rng, b, fresh, sessions := rand.New(rand.NewPCG(seed, 77)), NewBuilder("light"), int64(0), 0
	grow := func(of []int64, tokens int) []int64 {
		for len(of) < tokens/lightBlock {
			fresh++
			of = append(of, fresh)
		}
		return of
	}
	head := grow(nil, l.Head)
	type session struct {
		id, turn int
		prompt   []int64
	}
	open := func(turn int) *session {
		sessions++
		return &session{id: sessions, turn: turn, prompt: slices.Clone(head)}
	}
	all := make([]*session, l.Sessions)
	for i := range all {
		if all[i] = open(0); !l.Aligned {
			all[i].turn = rng.IntN(l.Turns)
		}
	}
	var ids []int
	for len(ids) < l.Requests {
		if l.Shuffled {
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		for i, s := range all {
			s.prompt = grow(s.prompt, l.Head+l.Own+l.Growth*s.turn)
			b.Add(0, len(s.prompt)*lightBlock+5, 4, slices.Clone(s.prompt))
			ids = append(ids, s.id)
			if s.turn++; s.turn == l.Turns {
				all[i] = open(0)
			}
		}
	}
	t := b.Trace()
	for i, id := range ids {
		t.Requests[i].Session = id
	}
	t.Block, t.Duration = lightBlock, 1
	return t
}

// Config returns the configuration of a run.
func (l *Light) Config(seed uint64) Config {
	hw := H100()
	hw.Capacity = l.Capacity
	c := Config{Replicas: l.Replicas, Hardware: hw, Seed: seed, Closed: l.InFlight, Warm: 0.2}
	if l.Aligned {
		c.Warm = 1e-9
	}
	return c
}
