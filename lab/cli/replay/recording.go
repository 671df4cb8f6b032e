package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"warmroute/internal/tracefile"
	"warmroute/internal/tracefile/tracereader"
	"warmroute/lab/simulator"
)

// The limits of a trace in memory.
const (
	maxRequests = 8 << 20
	maxBlocks   = 256 << 20 // of all requests together
	// maxBackwards is how far a line may be behind the latest: requests are written when
	// they are decided, and a decision may wait for token ids.
	maxBackwards = 10 * time.Second
)

// traced is a request of a trace file, and its end.
type traced struct {
	tracereader.Request
	first  time.Time // of the first token; zero = not known
	ended  time.Time // zero = not known
	failed bool

	counted tracefile.Counted // by the replica and Envoy; Number is 0 if it is not known
}

// recording is the content of trace files.
type recording struct {
	all    []traced
	at     map[[2]uint64]int // by run and number
	latest time.Time
	fleet  []tracefile.Replica // the largest
	spent  []tracefile.Prefilled
	model  string
	block  int // tokens of a block, as recorded
	left   int // requests that are left out
}

// readTraces reads trace files, the oldest first.
func readTraces(in []io.Reader, progress func(lines int)) (*recording, error) {
	r := &recording{at: map[[2]uint64]int{}}
	reader := tracereader.Reader{Request: r.request, Ended: r.ended, Counted: r.count, Fleet: r.describe, Prefill: r.prefilled}
	for i, from := range in {
		if err := reader.Read(from); err != nil {
			return nil, fmt.Errorf("trace %d of %d: %w", i+1, len(in), err)
		}
		progress(len(r.all))
	}
	if len(r.all) == 0 {
		return nil, errors.New("the trace has no requests")
	}
	return r, nil
}

func (r *recording) request(q *tracereader.Request) error {
	if len(r.all) >= maxRequests {
		return fmt.Errorf("there are more than %d requests: give fewer files", maxRequests)
	}
	if q.At.Before(r.latest.Add(-maxBackwards)) {
		return fmt.Errorf("the request came %v before one above it: the files are not in order, or the clock was set", r.latest.Sub(q.At).Round(time.Second))
	}
	if q.At.After(r.latest) {
		r.latest = q.At
	}
	r.at[[2]uint64{uint64(q.Run), q.Number}] = len(r.all)
	r.all = append(r.all, traced{Request: *q})
	return nil
}

func (r *recording) ended(run int, e *tracefile.Ended) error {
	key := [2]uint64{uint64(run), e.Number}
	if i, ok := r.at[key]; ok {
		r.all[i].first, r.all[i].ended, r.all[i].failed = e.First, e.At, e.Status >= http.StatusBadRequest
	}
	return nil
}

func (r *recording) count(run int, c *tracefile.Counted) error {
	if i, ok := r.at[[2]uint64{uint64(run), c.Number}]; ok {
		r.all[i].counted = *c
	}
	return nil
}

func (r *recording) describe(fleet []tracefile.Replica) error {
	if len(fleet) >= len(r.fleet) {
		r.fleet = fleet
	}
	return nil
}

func (r *recording) prefilled(p *tracefile.Prefilled) error {
	if len(r.spent) < maxRequests {
		r.spent = append(r.spent, *p)
	}
	return nil
}

// choose keeps the requests of one model with blocks of one size: of the given model, or of
// the one with the most tokens. Requests that failed, or whose length is not known, are left
// out.
func (r *recording) choose(model string) error {
	type group struct {
		model string
		block int
	}
	tokens := map[group]int{}
	for i := range r.all {
		q := &r.all[i]
		if len(q.Spans) > 0 && (model == "" || q.Model == model) {
			tokens[group{q.Model, q.BlockTokens}] += q.Tokens
		}
	}
	if len(tokens) == 0 {
		return fmt.Errorf("the trace has no prompts with blocks of model %q", model)
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(tokens)), func(a, b group) int {
		return cmp.Or(cmp.Compare(tokens[a], tokens[b]), cmp.Compare(b.model, a.model), cmp.Compare(b.block, a.block))
	})
	r.model, r.block = most.model, most.block
	before := len(r.all)
	r.all = slices.DeleteFunc(r.all, func(q traced) bool {
		return q.Model != r.model || len(q.Spans) > 0 && q.BlockTokens != r.block || q.Tokens == 0 || q.failed
	})
	r.left = before - len(r.all)
	slices.SortStableFunc(r.all, func(a, b traced) int { return a.At.Compare(b.At) })
	return nil
}

// holders returns the number of the model's KV caches, and the tokens of the smallest; 0
// for what the trace does not say.
func (r *recording) holders() (n, capacity int) {
	for _, v := range r.fleet {
		if v.Model != r.model && len(r.fleet) > 1 {
			continue
		}
		n += max(1, v.Ranks)
		if own := (v.Blocks - 1) * v.BlockTokens; own > 0 && (capacity == 0 || own < capacity) { // one block of a pool is vLLM's null block
			capacity = own
		}
	}
	return n, capacity
}

// trace returns the requests for the simulator, with blocks of the given size, a multiple
// of the recorded one, and answers of output tokens (0: as learned from the trace).
func (r *recording) trace(block, output int) (*simulator.Trace, *answers, error) {
	every := block / r.block
	b := simulator.NewBuilder("trace")
	total := 0
	for i := range r.all {
		q := &r.all[i]
		var ids []int64
		n := 0
		for _, s := range q.Spans {
			if total += int(s.Count) / every; total > maxBlocks {
				return nil, nil, fmt.Errorf("the prompts have more than %d blocks of %d tokens: set -block to a multiple of %d", maxBlocks, block, block)
			}
			for k := range s.Count {
				if n++; n%every == 0 { // an id stands for all blocks before it
					ids = append(ids, int64(q.Run)<<44|int64((s.First+k)&(1<<44-1)))
				}
			}
		}
		b.Add(q.At.Sub(r.all[0].At).Seconds(), q.Tokens, 1, ids)
	}
	t := b.Trace()
	t.Block = block
	a := findAnswers(t, r.all)
	a.fill(t, output)
	return t, a, nil
}

// recorded says which share of the prompt tokens was cached, of the requests from the given
// one on: as replicas counted, and as the router predicted unless hints were withheld.
func (r *recording) recorded(from int) string {
	var cached, tokens, predicted, all, counted, withheld int
	for i := range r.all[from:] {
		q := &r.all[from+i]
		if c := &q.counted; c.Number != 0 && !c.NoCached {
			counted, cached, tokens = counted+1, cached+c.Cached, tokens+c.Prompt
		}
		if q.Withheld != "" {
			withheld++
		}
		predicted, all = predicted+q.Cached, all+q.Tokens
	}
	said := ""
	if counted > 0 {
		said = fmt.Sprintf("%.1f %% of the prompt tokens were cached, as the replicas counted for %d requests", share(cached, tokens), counted)
	}
	if withheld == 0 {
		return fmt.Sprintf("%s%.1f %% of the prompt tokens were cached, by the router's predictions", strings.TrimPrefix(said+"; ", "; "), share(predicted, all))
	}
	if said == "" {
		said = "the cached tokens are not known, for no replica's counts were read (envoy.usage_share)"
	}
	return fmt.Sprintf("%s; hints were withheld from %d requests", said, withheld)
}

// share returns a part in percent.
func share(part, all int) float64 { return 100 * float64(part) / float64(max(1, all)) }

// pace is the speed of the replicas' engines, as a trace shows it; 0 = it does not.
type pace struct {
	prefill float64 // prompt tokens per second
	prompts int     // requests that show it
	counted bool    // by the replicas' counters: prompts are intervals
	step    float64 // seconds between two tokens of an answer
	answers int     // requests that show it
}

// Prefills of at least leastPrefill tokens show an engine's speed, shorter ones its step
// time. Fewer than leastSeen requests show nothing.
const (
	leastPrefill = 256
	leastSeen    = 5
)

// firstToken returns the time to a request's first token, and from there to the end; 0 =
// not known. An event of the replica that was named reports it; where the hint was
// withheld, the first byte of a streamed answer does.
func (q *traced) firstToken() (first, rest time.Duration) {
	c := &q.counted
	switch {
	case !q.first.IsZero() && q.Withheld == "":
		return q.first.Sub(q.At), q.ended.Sub(q.first)
	case c.Number != 0 && c.Output >= leastStream && c.First < c.Took*3/4:
		return c.First, c.Took - c.First
	}
	return 0, 0
}

// leastStream is the tokens of an answer from which on the time of its first byte shows
// whether it was streamed.
const leastStream = 8

// computed returns the tokens of a prompt that were not cached; false if it is not known.
func (q *traced) computed() (tokens int, known bool) {
	if c := &q.counted; c.Number != 0 && !c.NoCached {
		return c.Prompt - c.Cached, true
	}
	return q.Tokens - q.Cached, q.Withheld == ""
}

// pace returns the speeds by the requests whose first token was seen, and whose answer's
// length is known. The fastest tenth of them waited least for others.
func (r *recording) pace(a *answers) (p pace) {
	var prefill, step []float64
	for i := range r.all {
		first, rest := r.all[i].firstToken()
		if n, known := r.all[i].computed(); known && first > 0 && n >= leastPrefill {
			prefill = append(prefill, float64(n)/first.Seconds())
		}
		if first > 0 && rest > 0 && a.known[i] > 0 {
			step = append(step, rest.Seconds()/float64(a.known[i]))
		}
	}
	p.prompts, p.answers = len(prefill), len(step)
	if p.prompts < leastSeen {
		prefill, p.counted = r.counted(), true
		p.prompts = len(prefill)
	}
	if p.prompts >= leastSeen {
		slices.Sort(prefill)
		p.prefill = prefill[len(prefill)*9/10]
	}
	if p.answers >= leastSeen {
		slices.Sort(step)
		p.step = step[len(step)/10]
	}
	return p
}

// counted returns the speeds by the replicas' counters, of each interval whose prompts are long
// enough.
func (r *recording) counted() (all []float64) {
	served := r.model
	if !slices.ContainsFunc(r.spent, func(p tracefile.Prefilled) bool { return p.Model == served }) && len(r.spent) > 0 {
		served = r.spent[0].Model // the requests name an alias
	}
	for _, p := range r.spent {
		if p.Model == served && p.Seconds > 0 && p.Tokens >= leastPrefill*p.Requests {
			all = append(all, float64(p.Tokens)/p.Seconds)
		}
	}
	return all
}
