package filter

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/telemetry"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// promptOf is a prompt of n tokens in blocks of four.
func promptOf(t *testing.T, n, most int, partial bool, change func(*tokenPrompts)) *tokenPrompts {
	t.Helper()
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i + 1)
	}
	mv, _ := newBench(t, nil, replica(1)).decider.Find("m", "")
	p := new(tokenPrompts)
	p.set(mv, &openai.Request{}, []tokens.Prompt{{Tokens: ids, Partial: partial}}, most)
	if change != nil {
		change(p)
	}
	return p
}

// TestLengthsOfPrompts: the length that a cache may cover, of a complete prompt, of
// a prompt whose end is unknown, and of a cut prompt.
func TestLengthsOfPrompts(t *testing.T) {
	four := &index.Scope{BlockSize: 4}
	for name, tt := range map[string]struct {
		n, most          int
		partial          bool
		keys, length     int
		chain, lastBlock int // blocks of four tokens
	}{
		"whole blocks and one more":   {9, 100, false, 2, 9, 2, 2},
		"whole blocks":                {8, 100, false, 1, 8, 2, 2},
		"whole blocks, the end open":  {8, 100, true, 2, 9, 2, 0},
		"cut":                         {20, 8, false, 2, 9, 2, 5},
		"one block, the end open":     {4, 100, true, 1, 5, 1, 0},
		"one block":                   {4, 100, false, 0, 4, 1, 1},
		"less than a block":           {3, 100, false, 0, 3, 0, 0},
		"less than a block, end open": {3, 100, true, 0, 4, 0, 0},
	} {
		p := promptOf(t, tt.n, tt.most, tt.partial, nil)
		if keys := p.AppendKeys(nil, four, 0); len(keys) != tt.keys {
			t.Errorf("%s: %d keys, want %d", name, len(keys), tt.keys)
		}
		if p.Length(0) != tt.length || p.Tokens(0) != tt.n {
			t.Errorf("%s: length %d of %d tokens, want %d", name, p.Length(0), p.Tokens(0), tt.length)
		}
		if keys := p.AppendChain(nil, index.Keying{Unit: 4}, 0); len(keys) != tt.chain || !slices.Equal(p.AppendKeys(nil, four, 0), keys[:tt.keys]) {
			t.Errorf("%s: a chain of %d, want %d that begins with the blocks' keys", name, len(keys), tt.chain)
		}
		content, blocks := p.Sentinel(four, 0)
		if blocks != tt.lastBlock || (content != 0) != (tt.lastBlock > 0) {
			t.Errorf("%s: %d blocks, the last is %d", name, blocks, content)
		}
		if last := tt.lastBlock; last > 0 {
			ids := p.prompts[0].Tokens[4*(last-1) : 4*last]
			if want := prefixhash.AppendContents(nil, ids, prefixhash.Blocks{Size: 4}, nil)[0]; content != uint64(want) {
				t.Errorf("%s: the last block's content is %d, want %d", name, content, want)
			}
		}
		none := &index.Scope{}
		if n, _ := p.Sentinel(none, 0); n != 0 || p.AppendKeys(nil, none, 0) != nil || p.AppendChain(nil, index.Keying{}, 0) != nil {
			t.Errorf("%s: keys of blocks without a size", name)
		}
	}
}

// TestSentinelOfASaltedPrompt: the salt is in the first block alone.
func TestSentinelOfASaltedPrompt(t *testing.T) {
	four := &index.Scope{BlockSize: 4}
	content := func(n int, salt string) uint64 {
		v, _ := promptOf(t, n, 100, false, func(p *tokenPrompts) {
			if salt != "" {
				p.mix.CacheSalt = &salt
			}
		}).Sentinel(four, 0)
		return v
	}
	if content(4, "") == content(4, "blue") {
		t.Error("the only block takes no notice of the salt")
	}
	if content(8, "") != content(8, "blue") {
		t.Error("the second block has the salt, too")
	}
}

// TestChainsOfVLLM are the engine's own hashes; none where they cannot be computed.
func TestChainsOfVLLM(t *testing.T) {
	seed := "0"
	hashing := func(g prefixhash.Generation, seed *string) *prefixhash.VLLM {
		return must.Get(prefixhash.NewVLLM(prefixhash.VLLMOptions{Algorithm: prefixhash.SHA256CBOR, Generation: g, Seed: seed}))(t)
	}
	adapter := func(path string) func(*tokenPrompts) {
		return func(p *tokenPrompts) {
			p.mix.LoRA, p.mix.LoRAPath = prefixhash.LoRA{Name: "sql", Set: true}, path
		}
	}
	for name, tt := range map[string]struct {
		hash   *prefixhash.VLLM
		change func(*tokenPrompts)
		units  int
	}{
		"seeded":                       {hashing(prefixhash.Untagged, &seed), nil, 2},
		"tagged":                       {hashing(prefixhash.Tagged, &seed), nil, 2},
		"the root is not known":        {hashing(prefixhash.Untagged, nil), nil, 0},
		"an adapter":                   {hashing(prefixhash.Untagged, &seed), adapter(""), 2},
		"an adapter whose path counts": {hashing(prefixhash.Tagged, &seed), adapter(""), 0},
		"an adapter, its path known":   {hashing(prefixhash.Tagged, &seed), adapter("/sql"), 2},
	} {
		p := promptOf(t, 10, 100, false, tt.change)
		got := p.AppendChain(nil, index.Keying{Hash: tt.hash, Unit: 4}, 0)
		if len(got) != tt.units {
			t.Errorf("%s: %d hashes, want %d", name, len(got), tt.units)
			continue
		}
		if tt.units == 0 {
			continue
		}
		root, _ := tt.hash.Root()
		want := tt.hash.AppendDigests(nil, prefixhash.Position{Parent: root}, p.prompts[0].Tokens, 4, p.mix)
		for i := range got {
			if got[i] != want[i].Key() {
				t.Errorf("%s: hash %d differs", name, i)
			}
		}
	}
}

// TestWhatADecisionCounts: the times taken, the sources of the tokens and of the match, and the
// tokens predicted on the first of the list.
func TestWhatADecisionCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	var took [phases]time.Duration
	took[0] = 2 * time.Second
	m.decided(&decision.Record{Reason: decision.ReasonWarm, Subject: decision.Subject{Took: 3 * time.Second}, Prompted: decision.Prompted{Source: "body"},
		Choice: decision.Choice{Predicted: 64, Saved: 0.25, Match: policy.Match{policy.GPU: {Tokens: 32, Credit: 1, Source: policy.Reported}, policy.CPU: {Tokens: 32, Credit: 1, Token: 0.5 / 32}}, Chosen: "a:1,b:2"}}, "base", &took)
	m.decided(&decision.Record{Reason: decision.ReasonDisabled}, "", new([phases]time.Duration))
	families := must.Get(reg.Gather())(t)
	histograms := 0
	for _, f := range families {
		for _, series := range f.GetMetric() {
			h := series.GetHistogram()
			if h.GetSampleCount() == 0 {
				continue
			}
			histograms++
			if h.GetSampleCount() != 1 || h.GetSampleSum() != 2 && h.GetSampleSum() != 3 {
				t.Errorf("%s: %d observations of %g s", f.GetName(), h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
	if histograms != 2 {
		t.Errorf("%d histograms have observations, want the decision's and its phase's", histograms)
	}
	if n := testutil.CollectAndCount(m.sources); n != 1 || testutil.ToFloat64(m.sources.WithLabelValues("body")) != 1 {
		t.Errorf("%d sources", n)
	}
	if testutil.ToFloat64(m.predicted.WithLabelValues("a:1")) != 64 || testutil.CollectAndCount(m.predicted) != 1 {
		t.Error("64 tokens were predicted on the first alone")
	}
	of := m.models.Of("base")
	if testutil.ToFloat64(of.tokens) != 64 || testutil.ToFloat64(of.seconds) != 0.25 || testutil.ToFloat64(of.reasons[decision.ReasonWarm]) != 1 || testutil.ToFloat64(m.models.Of("").reasons[decision.ReasonDisabled]) != 1 {
		t.Error("the model has its decision and what its cached tokens save, the request without a model its own")
	}
	if testutil.ToFloat64(m.matches[policy.Reported]) != 1 || testutil.ToFloat64(m.matches[policy.History]) != 0 {
		t.Error("one match was reported")
	}
	if testutil.ToFloat64(of.loaded) != 32 {
		t.Error("the model lacks the tokens to load")
	}
	for i := range 3 * telemetry.MostModels {
		m.decided(&decision.Record{Reason: decision.ReasonCold}, fmt.Sprint("adapter", i), new([phases]time.Duration))
	}
	if n := testutil.ToFloat64(m.models.Of("one more").reasons[decision.ReasonCold]); n != 2*telemetry.MostModels+1 {
		t.Errorf("%v decisions of models beyond the limit", n)
	}
}

// TestChainsOfAnAdaptersPath: replicas may have an adapter from different paths. The keys, and the
// chains after them, are of the path of the scope that is looked up.
func TestChainsOfAnAdaptersPath(t *testing.T) {
	at := func(path string) index.Scope {
		return index.Scope{BlockSize: 4, LoRA: prefixhash.LoRA{Name: "sql", Path: path, Set: true}}
	}
	p := promptOf(t, 10, 100, false, func(p *tokenPrompts) {
		p.mix.LoRA, p.mix.LoRAPath = at("/1").LoRA, "/1"
		p.root = prefixhash.TokenRoot(p.base, p.mix.LoRA)
	})
	seen := map[prefixhash.Key]string{}
	for _, path := range []string{"/1", "/2", "", "/1", "/2"} {
		s := at(path)
		keys := p.AppendKeys(nil, &s, 0)
		chain := p.AppendChain(nil, index.Keying{Unit: 4}, 0)
		want := prefixhash.Link(prefixhash.TokenRoot(p.base, s.LoRA), prefixhash.AppendContents(nil, []uint32{1, 2, 3, 4}, prefixhash.Blocks{Size: 4}, [][]prefixhash.ExtraKey{{{ID: "sql"}}})[0])
		if keys[0] != want || chain[0] != want || p.mix.LoRAPath != path {
			t.Errorf("path %q: key %x, chain %x, want %x; hashes of the path %q", path, keys[0], chain[0], want, p.mix.LoRAPath)
		}
		if of, known := seen[want]; known && of != path {
			t.Errorf("paths %q and %q have one key", of, path)
		}
		seen[want] = path
	}
}
