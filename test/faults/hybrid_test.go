package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/kvevents"
	"warmroute/lab/vllmsim"
	"warmroute/prefixhash"
)

// hybridGroups are the caches of the hybrid storm: windows as in Gemma and
// gpt-oss, Mamba states as in Qwen3-Next, and a draft model that drops a block.
var hybridGroups = []vllmsim.Options{
	{Blocks: 160, Groups: []vllmsim.Group{{Kind: vllmsim.SlidingWindow, Window: 24}, {Kind: vllmsim.SlidingWindow, Window: 24}, {Kind: vllmsim.FullAttention}}},
	{Blocks: 120, Groups: []vllmsim.Group{{Kind: vllmsim.SlidingWindow, Window: 40}, {Kind: vllmsim.FullAttention}}, Retention: vllmsim.Dense, HashBytes: true},
	{Blocks: 90, Groups: []vllmsim.Group{{Kind: vllmsim.Mamba}, {Kind: vllmsim.Mamba}, {Kind: vllmsim.FullAttention}}},
	{Blocks: 120, Groups: []vllmsim.Group{{Kind: vllmsim.Mamba}, {Kind: vllmsim.FullAttention}}, Eagle: []int{1}, Draft: 2, Retention: 32},
}

const hybridBlock = 8 // tokens

// hybrid is one simulated replica with several cache groups, and who follows it.
type hybrid struct {
	t      *testing.T
	o      vllmsim.Options
	holder index.Holder
	sim    *vllmsim.Sim
	end    func()
	leave  func()
	served [][]uint32
	rng    *rand.Rand
	asked  int
	dead   int
}

// TestStormHybrid: replicas with several KV cache groups lose and delay batches,
// evict, are reset and restarted, and their subscribers are replaced. Within two
// seconds after that, the index's prediction for every prompt equals the blocks
// that the replica would find.
func TestStormHybrid(t *testing.T) {
	l, first := limitsOf(t), seeded(t)
	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	nodes := make([]*hybrid, len(hybridGroups))
	for i, o := range hybridGroups {
		o.BlockSize, o.Model, o.PrefillRate, o.DecodeRate = hybridBlock, scope.Model, -1, -1
		o.MaxModelLen, o.MaxBatchedTokens = 320, 64
		o.Listen, o.Events, o.Replay = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		h := &hybrid{t: t, o: o, holder: index.Holder{Replica: fmt.Sprintf("hybrid-%d", i)}, rng: rand.New(rand.NewPCG(first, uint64(i)))}
		told := &index.GroupSettings{Rule: index.GroupRule032, EagleKnown: true, ReplayKnown: true}
		for _, g := range o.Eagle {
			told.Eagle |= 1 << g
		}
		x.SetGroups(h.holder.Replica, told)
		h.start()
		h.join(x)
		nodes[i] = h
	}
	defer func() {
		for _, h := range nodes {
			h.leave()
			h.end()
		}
	}()
	for round := range min(l.rounds, 6) {
		var running sync.WaitGroup
		for _, h := range nodes {
			running.Go(func() { h.blow(x, time.Now().Add(l.round), l.pace) })
		}
		running.Wait()
		for _, h := range nodes {
			h.sim.SetFaults(vllmsim.Faults{})
			for range 16 { // a lost last batch shows no gap, and a life that has just begun has nothing cached
				h.serve(h.prompt())
			}
		}
		last := time.Now()
		for _, h := range nodes {
			hits, checked := h.agree(x, last, l.settled)
			t.Logf("round %d, %s: %d prompts equal, %d found something cached, %v after the last batch; %d requests, %d new lives",
				round+1, h.holder.Replica, checked, hits, time.Since(last).Round(time.Millisecond), h.asked, h.dead)
			if hits == 0 {
				t.Errorf("%s: nothing is cached: nothing was tested", h.holder.Replica)
			}
		}
	}
}

// start begins a life of the replica, on the addresses of the one before.
func (h *hybrid) start() {
	h.t.Helper()
	sim, err := vllmsim.New(h.o)
	for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); sim, err = vllmsim.New(h.o) {
		time.Sleep(10 * time.Millisecond) // until the address is free again
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.o.Listen, h.o.Events, h.o.Replay = sim.Addr(), sim.EventEndpoint(0)[len("tcp://"):], sim.ReplayEndpoint(0)[len("tcp://"):]
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sim.Run(ctx) }()
	h.sim = sim
	h.end = func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	}
}

// join subscribes to the replica.
func (h *hybrid) join(x *index.Index) {
	h.t.Helper()
	s, err := kvevents.New(kvevents.Options{
		Replica: h.holder.Replica, Endpoint: "tcp://" + h.o.Events, ReplayEndpoint: "tcp://" + h.o.Replay, Model: scope.Model, Scheme: scope.Scheme,
	}, x)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	h.leave = func() { cancel(); running.Wait() }
}

// blow drives the replica until end, under faults.
func (h *hybrid) blow(x *index.Index, end time.Time, pace time.Duration) {
	for time.Now().Before(end) {
		switch p := h.rng.IntN(1000); {
		case p < 3:
			h.sim.ResetPrefixCache()
		case p < 5:
			h.end()
			h.start()
			h.served, h.dead = nil, h.dead+1
		case p < 12:
			h.leave()
			h.join(x)
		case p < 60:
			h.sim.SetFaults(vllmsim.Faults{DropEvery: h.rng.IntN(5), EventDelay: time.Duration(h.rng.IntN(20)) * time.Millisecond})
		default:
			h.serve(h.prompt())
		}
		time.Sleep(pace) // the rate of the storm
	}
}

// prompt is a new prompt, a repeat, a longer one or a branch of an earlier one.
func (h *hybrid) prompt() []uint32 {
	some := func(n int) []uint32 {
		out := make([]uint32, n)
		for i := range out {
			out[i] = uint32(h.rng.IntN(30_000))
		}
		return out
	}
	var p []uint32
	if n := len(h.served); n > 0 && h.rng.IntN(4) > 0 {
		old := h.served[n-1-h.rng.IntN(min(n, 12))]
		p = append(p, old[:len(old)-h.rng.IntN(2)*h.rng.IntN(len(old))]...)
		if h.rng.IntN(3) == 0 {
			return p[:max(1, len(p))]
		}
	}
	p = append(p, some(1+h.rng.IntN(80))...)
	return p[:min(len(p), 280)]
}

func (h *hybrid) serve(p []uint32) {
	if len(p) == 0 {
		return
	}
	body, err := json.Marshal(map[string]any{"model": scope.Model, "prompt": p, "max_tokens": 1 + h.rng.IntN(20)})
	if err != nil {
		h.t.Error(err)
		return
	}
	resp, err := http.Post("http://"+h.sim.Addr()+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil || resp.StatusCode != http.StatusOK {
		h.t.Errorf("%s: %v %v", h.holder.Replica, resp, err)
		return
	}
	_ = resp.Body.Close()
	h.served, h.asked = append(h.served, p), h.asked+1
}

// agree waits until the index predicts the replica's hit for every prompt.
func (h *hybrid) agree(x *index.Index, since time.Time, limit time.Duration) (hits, checked int) {
	h.t.Helper()
	prompts := h.served[max(0, len(h.served)-60):]
	for {
		hits, checked = 0, 0
		wrong := ""
		for _, p := range prompts {
			for _, n := range []int{len(p), len(p) * 2 / 3} {
				if n == 0 {
					continue
				}
				want, got := h.sim.Find(0, p[:n]), h.predicted(x, p[:n])
				if checked++; want > 0 {
					hits++
				}
				if want != got {
					wrong = fmt.Sprintf("%d tokens: predicted %d, the replica would find %d", n, got, want)
				}
			}
		}
		if wrong == "" {
			return hits, checked
		}
		if time.Since(since) > limit {
			h.t.Fatalf("%s, %v after the last batch: %s", h.holder.Replica, time.Since(since), wrong)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

func (h *hybrid) predicted(x *index.Index, tokens []uint32) int {
	s := scope
	s.BlockSize, s.Group = hybridBlock, len(h.o.Groups)-1 // full attention is the last
	t := tokenPrompt(tokens)
	keys := t.AppendChain(nil, index.Keying{Unit: s.BlockSize})
	var found index.Found
	x.FindPrompt(&found, s, keys[:min(len(keys), max(0, len(tokens)-1)/s.BlockSize)], t)
	for m := range found.All() {
		if holder, _ := x.HolderOf(m.ID); holder == h.holder {
			if m.Grouped {
				return int(m.Hit)
			}
			return int(m.Reported) * s.BlockSize
		}
	}
	return 0
}

// tokenPrompt is a prompt by its tokens alone.
type tokenPrompt []uint32

func (p tokenPrompt) Tokens() int { return len(p) }

func (p tokenPrompt) AppendChain(dst []prefixhash.Key, c index.Keying) []prefixhash.Key {
	if c.Unit <= 0 || c.Hash != nil {
		return dst
	}
	return prefixhash.AppendTokens(dst, prefixhash.TokenRoot(scope.Model, scope.LoRA), p, c.Unit, nil)
}
