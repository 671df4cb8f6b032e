//go:build vllm

package sglang

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// configs are the configurations of replicas.py, and what their predictions promise.
var configs = []struct {
	name    string
	model   string // whose config.json it has
	bound   bool   // predictions are upper bounds, and none is called exact
	loads   bool   // some prompts are loaded from the host
	long    int    // tokens of a long text
	adapter bool   // some requests are for an adapter
	keys    bool   // some have an extra_key
}{
	{name: "namespaces", model: "qwen3", long: 500, adapter: true, keys: true},
	{name: "pairs", model: "qwen3", long: 150},
	{name: "host", model: "qwen3", loads: true, long: 250},
	{name: "window", model: "gemma3", bound: true, long: 500},
	{name: "older", model: "qwen3", bound: true, long: 500, keys: true},
}

const (
	perConfig  = 2   // replicas
	earlier    = 40  // requests to each replica before the router starts
	requests   = 120 // through Envoy, to each configuration, half of them after a restart of the router
	vocabulary = 16
	patience   = 2 * time.Minute // detects hangs
)

// TestCaches sends random prompts to SGLang's own caches through real Envoy. The router has
// their first batches by replay, in both forms of its replies, also after it was killed, and
// finds events, pages and load by itself. No prediction may differ from what SGLang took from
// its cache, unless it is marked as an upper bound, and those may not be too low.
func TestCaches(t *testing.T) {
	s := start(t)
	for half := range 2 {
		t.Run([]string{"first", "after a restart"}[half], func(t *testing.T) {
			for i := range configs {
				t.Run(configs[i].name, func(t *testing.T) {
					t.Parallel()
					s.traffic[i].run(t, s, requests/2)
				})
			}
		})
		if half == 0 {
			s.router.Kill()
			s.launch()
		}
	}
	for i := range s.traffic {
		s.traffic[i].check(t)
	}
	s.differences(t)
}

// answered reads the record of a request when Envoy has reported its usage.
func (s *stack) answered(t *testing.T, id string) *decision.Record {
	t.Helper()
	r := s.record(t, id)
	for end := time.Now().Add(patience); r.Answered == nil && time.Now().Before(end); r = s.record(t, id) {
		time.Sleep(100 * time.Millisecond)
	}
	return r
}

// differences: the metric of differences has every answer since the restart, and shows which
// replicas' predictions are too high.
func (s *stack) differences(t *testing.T) {
	t.Helper()
	page := must.Get(testenv.Get(t.Context(), "http://"+s.admin+"/metrics"))(t)
	const name = "warmroute_prediction_difference_tokens"
	counts := testenv.Samples(page, name+"_count", "model")
	high := map[string]float64{}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+"_bucket{") && strings.Contains(line, `le="-1"`) {
			for model, n := range testenv.Samples(line, name+"_bucket", "model") {
				high[model] += n
			}
		}
	}
	for _, c := range configs {
		if n := counts[c.name]; n != requests/2 && !c.adapter || n == 0 { // an adapter's answers count for its base
			t.Errorf("%s: %v differences, want %d", c.name, n, requests/2)
		}
		if !c.adapter && (high[c.name] > 0) != c.bound {
			t.Errorf("%s: %v predictions were too high", c.name, high[c.name])
		}
	}
}

// traffic is the requests to one configuration's replicas.
type traffic struct {
	of       int // configs
	replicas []string
	rng      *rand.Rand
	docs     [][]uint32
	past     []body // prompts with their answers

	sent, hits, exact, wrong, low, high, loads int
	far                                        int            // tokens between counts and predictions
	doubts                                     map[string]int // why predictions are not called exact
}

// body is a completion with token ids.
type body struct {
	Model  string   `json:"model"`
	Prompt []uint32 `json:"prompt"`
	Tokens int      `json:"max_tokens"`
	Salt   string   `json:"cache_salt,omitempty"`
	Key    string   `json:"extra_key,omitempty"`
	LoRA   string   `json:"lora_path,omitempty"`
}

func (c *traffic) text(n int) []uint32 {
	out := make([]uint32, max(1, n))
	for i := range out {
		out[i] = uint32(c.rng.IntN(vocabulary))
	}
	return out
}

// next makes a prompt: a conversation goes on, is repeated or branches, or a document is asked
// about.
func (c *traffic) next() body {
	long := configs[c.of].long
	if c.docs == nil {
		for range 6 {
			c.docs = append(c.docs, c.text(long/10+c.rng.IntN(long)))
		}
	}
	b := body{Model: configs[c.of].name}
	switch k := c.rng.IntN(10); {
	case k < 5 && len(c.past) > 0:
		b = c.past[max(0, len(c.past)-1-c.rng.IntN(12))]
		if k < 2 {
			b.Prompt = b.Prompt[:1+c.rng.IntN(len(b.Prompt))]
		}
	case k < 8:
		b.Prompt = c.docs[c.rng.IntN(len(c.docs))]
	}
	if k := c.rng.IntN(10); k > 0 || len(b.Prompt) == 0 {
		b.Prompt = slices.Concat(b.Prompt, c.text(c.rng.IntN(long/4)))
	}
	b.Prompt = b.Prompt[:min(len(b.Prompt), 1300)]
	if c.rng.IntN(8) == 0 {
		b.Salt = []string{"", "tenant"}[c.rng.IntN(2)]
	}
	switch k := c.rng.IntN(12); {
	case k == 0 && configs[c.of].adapter:
		b.Model, b.LoRA = configs[c.of].name, "adapter"
		if c.rng.IntN(2) == 0 {
			b.Model, b.LoRA = b.Model+":adapter", "" // the other way to name it
		}
	case (k == 1 || k == 2) && configs[c.of].keys:
		b.Key = []string{"", "class"}[c.rng.IntN(2)]
	}
	b.Tokens = 1 + c.rng.IntN(20)
	return b
}

// took keeps a prompt with its answer.
func (c *traffic) took(b body, answer string) {
	b.Prompt = slices.Clone(b.Prompt)
	for word := range strings.FieldsSeq(answer) {
		id, _ := strconv.Atoi(word)
		b.Prompt = append(b.Prompt, uint32(id))
	}
	c.past = append(c.past, b)
}

// run sends n requests through Envoy, one after the other. Envoy then has reported the usage
// of each answer.
func (c *traffic) run(t *testing.T, s *stack, n int) {
	counted := map[string]int{}
	for i := range n {
		if i == n*3/4 { // one replica of the two is emptied
			testenv.Post(t, "http://"+c.replicas[0]+"/flush_cache", struct{}{}).Into(t, nil)
		}
		s.settle(t, c.replicas)
		b := c.next()
		var now struct {
			Decision decision.Record
		}
		testenv.Post(t, "http://"+s.admin+"/debug/explain?path=/v1/completions", b).Into(t, &now)
		var a answer
		id := fmt.Sprintf("%s-%d", configs[c.of].name, c.sent)
		s.send(t, id, b, &a)
		c.sent++
		c.took(b, a.Choices[0].Text)
		c.compare(t, &b, s.record(t, id), &now.Decision, &a)
		counted[id] = a.Usage.Details.Cached
	}
	for id, want := range counted {
		r := s.answered(t, id)
		if r.Answered == nil || r.ActualCached == nil || *r.ActualCached != want {
			t.Errorf("%s: the answer says %d cached tokens, the record %+v", id, want, r.Answered)
		}
	}
}

// compare holds the prediction of a request to what SGLang took from its cache. now is the
// explanation of a decision just before it.
func (c *traffic) compare(t *testing.T, b *body, r, now *decision.Record, a *answer) {
	t.Helper()
	cached := a.Usage.Details.Cached
	at := slices.IndexFunc(now.Candidates, func(k decision.CandidateRecord) bool { return k.Replica == a.replica })
	if !r.Reason.Hint() || !strings.HasPrefix(r.Chosen, a.replica) || at < 0 || now.Candidates[at].Cache == nil {
		t.Fatalf("request %d of %s, %d tokens: reason %s, chosen %s, served by %s, explained %s, %+v", c.sent, b.Model, len(b.Prompt), r.Reason, r.Chosen, a.replica, now.Reason, now.Candidates)
	}
	exact, predicted := now.Candidates[at].Cache.Trust.Exact, r.Predicted+r.Match.Below()
	c.far += predicted - cached
	if cached > 0 {
		c.hits++
	}
	if r.Match.Below() > 0 {
		c.loads++
	}
	if exact {
		c.exact++
	} else {
		c.doubts[now.Candidates[at].Cache.Trust.Why]++
	}
	switch {
	case predicted < cached:
		c.low++
	case predicted > cached && exact:
		c.wrong++
	case predicted > cached:
		c.high++
	default:
		return
	}
	if !exact && predicted > cached {
		return
	}
	t.Errorf("request %d (adapter %v, salt %q, extra_key %q), %d tokens: predicted %d (%d of them loaded, %v), SGLang found %d", c.sent, b.LoRA != "" || strings.HasSuffix(b.Model, ":adapter"), b.Salt, b.Key, r.Tokens, predicted, r.Match.Below(), now.Candidates[at].Cache.Trust, cached)
}

func (c *traffic) check(t *testing.T) {
	k := configs[c.of]
	t.Logf("%s: %d requests, %d hit something, %d loaded from the host; %d called exact, %d of them wrong; %d bounds above the count, %d below, %d tokens between bounds and counts; not exact: %v",
		k.name, c.sent, c.hits, c.loads, c.exact, c.wrong, c.high, c.low, c.far, c.doubts)
	if c.hits < c.sent/4 || k.loads != (c.loads > 0) || k.bound && c.exact > 0 || !k.bound && c.exact < c.sent/4 {
		t.Errorf("%s: too little is shown, or another part is called exact", k.name)
	}
}

// answer is a replica's answer.
type answer struct {
	replica string
	Choices []struct{ Text string }
	Usage   struct {
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}
