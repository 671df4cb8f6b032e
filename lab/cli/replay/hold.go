package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/sessions"
	"warmroute/lab/cli/agents"
	"warmroute/lab/simulator"
	"warmroute/prefixhash"
)

// conversing is what a trace shows of sessions.
type conversing struct {
	all      [][]agents.Turn
	requests int
	open     float64 // sessions at a time
	context  float64 // tokens of a prompt with its answer, in the mean
	repeats  float64 // share of the prompt tokens that an earlier prompt had
}

// session is one of them.
type session struct {
	requests []int
	from, to time.Time // from its first request to its last answer
}

// came returns when a request came: a held one is in the trace as of its decision.
func (q *traced) came() time.Time { return q.At.Add(-q.Session.Waited) }

// converse finds the sessions of the requests in t, as a router finds them.
func (r *recording) converse(t *simulator.Trace, a *answers) *conversing {
	of := r.sessions(t)
	c := &conversing{requests: len(r.all)}
	head := shared(of, a, t.Block)
	var open time.Duration
	prompts, repeats := 0.0, 0.0
	for _, s := range of {
		open += s.to.Sub(s.from)
		var turns []agents.Turn
		for k, i := range s.requests {
			q := &t.Requests[i]
			turn := agents.Turn{Input: q.Input, Output: cmp.Or(a.known[i], q.Output), Same: min(head, a.news[i]*t.Block)}
			if k > 0 {
				before := s.requests[k-1]
				turn.Same = min(q.Input, common(q.Blocks, t.Requests[before].Blocks)*t.Block)
				turn.After = max(0, r.all[i].came().Sub(r.all[before].over()).Seconds())
			}
			turns = append(turns, turn)
			prompts, repeats = prompts+float64(q.Input), repeats+float64(turn.Same)
			c.context += float64(q.Input+q.Output) / float64(len(r.all))
		}
		c.all = append(c.all, turns)
	}
	c.open = float64(open) / float64(max(time.Second, r.latest.Sub(r.all[0].came())))
	c.repeats = repeats / prompts
	return c
}

// over returns when a request ended, as far as it is known.
func (q *traced) over() time.Time {
	if q.ended.Before(q.At) {
		return q.At
	}
	return q.ended
}

// sessions assigns the requests by the router's own table, which holds none of them: no size is
// known. They are in the order of their beginnings.
func (r *recording) sessions(t *simulator.Trace) (out []*session) {
	type event struct {
		at    time.Time
		i     int
		ended bool
	}
	var events []event
	for i := range r.all {
		events = append(events, event{r.all[i].came(), i, false}, event{r.all[i].over(), i, true})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	table, at := sessions.New(), []sessions.Site{{Cache: new(history.History).Of(index.Holder{})}}
	marks := prefixhash.MarksOf(t.Block)
	works, known := make([]*sessions.Work, len(r.all)), map[uint64]*session{}
	var keys []prefixhash.Key
	for _, e := range events {
		if e.ended {
			works[e.i].End(e.at)
			continue
		}
		keys = keys[:0]
		for _, b := range t.Requests[e.i].Blocks {
			keys = append(keys, prefixhash.Key(uint64(b+1)*0x9E3779B97F4A7C15))
		}
		ask := sessions.Request{Prompt: history.Prompt{Keys: marks.AppendPicked(nil, keys), Marks: marks}, Tokens: t.Requests[e.i].Input, Sites: at}
		_, w, _, _ := table.Admit(new(policy.Sessions), &ask, e.at)
		if w == nil {
			continue // shorter than a block
		}
		s := known[w.Session]
		if s == nil {
			s = &session{from: e.at}
			known[w.Session], out = s, append(out, s)
		}
		works[e.i], s.requests = w, append(s.requests, e.i)
		if over := r.all[e.i].over(); over.After(s.to) {
			s.to = over
		}
	}
	return out
}

// shared returns the tokens with which half of the sessions begin as others do.
func shared(of []*session, a *answers, block int) int {
	var all []int
	for _, s := range of {
		all = append(all, a.news[s.requests[0]]*block)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// common returns the number of blocks with which both begin.
func common(a, b []int32) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// mostSimulated are the replicas that are simulated for a fleet: each has its own sessions.
const mostSimulated = 4

// holdHours is the time that counts in each run.
const holdHours = 1

// hold runs the sessions of a trace in a closed loop, with and without held requests, and says what
// that changes.
func (o Options) hold(ctx context.Context, r *recording, t *simulator.Trace, a *answers, hw simulator.Hardware, speed string, out io.Writer) error {
	c := r.converse(t, a)
	replicas := o.Replicas[0]
	each := max(1, int(math.Round(c.open/float64(replicas))))
	w := &lines{to: out}
	w.say("%d sessions of %.1f requests in the mean; %.1f are open at a time, on %d replicas", len(c.all), float64(c.requests)/float64(len(c.all)), c.open, replicas)
	w.say("contexts have %.0f tokens in the mean: %.1f fit into a replica's cache of %d tokens", c.context, float64(hw.Capacity)/c.context, hw.Capacity)
	w.say("recorded: %s", r.recorded(0))
	w.say("%s", speed)
	w.say("simulated for %d h: as many sessions all the time, each next request as long after the answer as recorded", holdHours)
	if w.err != nil {
		return w.err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "sessions a replica\tpolicy\tcompleted\tcached\tTTFT mean\tp95\tmost\tagainst today\t")
	simulated := min(replicas, mostSimulated)
	run := agents.Options{All: c.all, Tokens: hw.Capacity, Rate: 1 / hw.PrefillToken, Step: hw.Step + hw.Weights, Replicas: simulated, Hours: holdHours, Seed: 1, Share: o.Hold}
	var verdict string
	for _, n := range slices.Compact([]int{max(1, each/2), each, 2 * each}) {
		var today agents.Cell
		for _, name := range []string{"today", "hold"} {
			run.Clients = n * simulated
			cell, err := agents.Run(ctx, name, run)
			if err != nil {
				return err
			}
			if name == "today" {
				today = cell
			}
			times := float64(cell.Completed) / float64(max(1, today.Completed))
			fmt.Fprintf(table, "%d\t%s\t%d\t%.1f %%\t%.1f s\t%.1f s\t%.1f s\t× %.2f\t\n", n, name, cell.Completed, 100*cell.HitRate, cell.Mean, cell.P95, cell.Max, times)
			if n == each {
				verdict = c.verdict(n, today.HitRate, times)
			}
			fmt.Fprintf(o.Progress, "%s: %d sessions\n", name, run.Clients)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	w.say("%s", verdict)
	return w.err
}

// verdict says whether the sessions are too many for the caches: less than half of what repeats is
// found there.
func (c *conversing) verdict(each int, hits, times float64) string {
	where := "not past the cliff"
	if hits < c.repeats/2 {
		where = "past the cliff"
	}
	return fmt.Sprintf("%s at %d sessions a replica: %.0f %% of the prompt tokens repeat, %.0f %% are found; holding would complete × %.2f", where, each, 100*c.repeats, 100*hits, times)
}

// holdable returns what is missing to say what holding would do; nil: nothing is.
func (o Options) holdable(capacity int, seen pace) error {
	switch {
	case cmp.Or(o.Capacity, capacity) == 0:
		return errors.New("the trace does not say how large the replicas' caches are: set -capacity")
	case o.PrefillRate == 0 && o.Slower == 1 && seen.prefill == 0:
		return errors.New("the trace does not show how fast the replicas prefill: set -prefill-rate")
	}
	return nil
}
