package dashboard

import (
	"maps"
	"slices"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
)

// Reading is the fleet and the router at a moment.
type Reading struct {
	Ranks   []Rank
	Decided map[string]Decisions // by base model, "" where none is known; they only rise
	Router  fleet.Spent          // the time that requests have spent in the router; it only rises
	Splits  decision.Splits
}

// Decisions are numbers of decisions by class.
type Decisions = map[decision.Class]int64

// Rank is a rank of a replica.
type Rank struct {
	Model string // the base model
	// Replica, Joined and Rank tell it from a later one at the same address.
	Replica string
	Joined  uint64
	Rank    int

	InFlight int       // requests sent by hint and not ended; in shadow mode those that the replica reports
	Queued   float64   // seconds of prefill that were sent and that it has not begun to answer
	Counted  bool      // its Counters are known
	Began    time.Time // its process, zero if that is not known
	Counters
}

// Counters are what a rank has counted, which only rises while its process lives.
type Counters struct {
	Hits        float64           // prompt tokens found in its prefix cache
	Prompt      float64           // prompt tokens looked up
	TTFT        fleet.Spent       // from a request's arrival to its first token
	FirstTokens fleet.FirstTokens // the same by time
	Queue       fleet.Spent
	Prefill     fleet.Spent
	Decode      fleet.Spent
}

// plus returns the sum of both, with a sign of -1 their difference.
func (c Counters) plus(sign float64, of Counters) Counters {
	c.Hits, c.Prompt, c.TTFT = c.Hits+sign*of.Hits, c.Prompt+sign*of.Prompt, spent(c.TTFT, sign, of.TTFT)
	c.Queue, c.Prefill, c.Decode = spent(c.Queue, sign, of.Queue), spent(c.Prefill, sign, of.Prefill), spent(c.Decode, sign, of.Decode)
	for i, n := range of.FirstTokens {
		c.FirstTokens[i] += sign * n
	}
	return c
}

// spent is plus for times.
func spent(a fleet.Spent, sign float64, b fleet.Spent) fleet.Spent {
	return fleet.Spent{Seconds: a.Seconds + sign*b.Seconds, Requests: a.Requests + sign*b.Requests}
}

// rose reports whether no counter of a difference is below 0.
func (c Counters) rose() bool {
	least := min(c.Hits, c.Prompt, slices.Min(c.FirstTokens[:]))
	for _, s := range []fleet.Spent{c.TTFT, c.Queue, c.Prefill, c.Decode} {
		least = min(least, s.Seconds, s.Requests)
	}
	return least >= 0
}

// firstTokens returns FirstTokens without zeros at the end.
func (c *Counters) firstTokens() []float64 {
	n := len(c.FirstTokens)
	for n > 0 && c.FirstTokens[n-1] == 0 {
		n--
	}
	return slices.Clone(c.FirstTokens[:n])
}

// names returns a function that returns the name under which a model is counted.
func (r *Reading) names() func(model string) string {
	all := slices.Collect(maps.Keys(r.Decided))
	for i := range r.Ranks {
		all = append(all, r.Ranks[i].Model)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(model string) bool { return model == "" })
	all = all[:min(len(all), mostModels)]
	return func(model string) string {
		if _, own := slices.BinarySearch(all, model); own {
			return model
		}
		return ""
	}
}
