package feed

import (
	"encoding/json"
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/sglang"
	"warmroute/prefixhash"
	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/must"
)

// sglangPrompt is a prompt of a request to SGLang.
type sglangPrompt struct {
	tokens []uint32
	prefixhash.Request
}

func (p *sglangPrompt) Tokens() int { return len(p.tokens) }

func (p *sglangPrompt) Mixes() index.Mix {
	return index.Mix{Salt: p.CacheSalt != nil, LoRA: p.LoRA.Set, Namespace: p.Namespace != ""}
}

func (p *sglangPrompt) AppendChain(dst []prefixhash.Key, c index.Keying) []prefixhash.Key {
	mix, b := c.Sight.Seen(p.Request), prefixhash.Blocks{Size: c.Unit, Ahead: c.Ahead}
	extras := mix.InNamespace(mix.AppendExtras(nil, len(p.tokens)/c.Unit, c.Unit, c.Ahead), p.tokens, b)
	return prefixhash.AppendTokens(dst, prefixhash.TokenRoot("m", mix.LoRA), p.tokens, b, extras)
}

// hit returns how many tokens of a prompt the replica has, as lookups find it.
func (h *harness) hit(r *fleet.Replica, p *sglangPrompt) (tokens int) {
	s := index.Scope{Model: "m", LoRA: p.LoRA, Scheme: index.SchemeTokens, BlockSize: r.BlockSize}
	keys := p.AppendChain(nil, index.Keying{Unit: r.BlockSize})
	var f index.Found
	h.index.FindPrompt(&f, s, keys[:min(len(keys), max(0, len(p.tokens)-1)/r.BlockSize)], p)
	for m := range f.All() {
		if tokens = int(m.Blocks) * r.BlockSize; m.Grouped {
			tokens = int(m.Hit)
		}
		tokens += int(m.Loaded)
	}
	return tokens
}

// TestSGLang: payloads that SGLang's own caches have published arrive over real sockets, the
// first ones by replay, and every lookup in between is right.
func TestSGLang(t *testing.T) {
	for _, c := range []struct {
		name     string
		server   sglang.Server
		captured string
	}{
		{"namespaces", sglang.Server{Config: new(string)}, "0.5.23-p16-extrakey-dynamo-s2"},
		{"host copies", sglang.Server{Hierarchical: true}, "0.5.23-p16-hicache-wb-s2"},
		{"pairs", sglang.Server{}, "0.5.23-p16-eagle-s2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			p := must.Get(kvtest.Start(kvtest.Options{Topic: "kv"}))(t)
			defer p.Close()
			server := c.server
			server.Version, server.PageSize, server.Kinds = "0.5.23", 16, []string{"full"}
			if server.Config != nil {
				*server.Config = `{"format":"dynamo"}`
			}
			r := &fleet.Replica{Addr: "10.0.0.1:30000", Ready: true, Reported: fleet.Reported{BlockSize: 16, Models: []fleet.Model{{ID: "m", Base: "m"}}, SGLang: &server, Events: []fleet.EventSource{{Endpoint: p.Endpoint(), ReplayEndpoint: p.ReplayEndpoint(), Topic: "kv"}}}, Ranks: []int{0}}
			frames, queries, last := 0, 0, uint64(0)
			for line := range golden.Lines(t, "../cli/predict/testdata/sglang/"+c.captured+".jsonl.gz") {
				var l struct {
					Frame *struct{ Payload []byte }
					Query *struct {
						Tokens []uint32
						Salt   *string `json:"cache_salt"`
						LoRA   *string `json:"lora_name"`
						Space  string  `json:"extra_key"`
					}
					Cached int
				}
				must.Do(t, json.Unmarshal(line, &l))
				switch {
				case l.Frame != nil:
					last = p.PublishRaw(l.Frame.Payload)
					if frames++; frames == 200 {
						h.feed.Join(r)
					}
				case l.Query != nil && frames >= 200:
					h.until("the frames have arrived", func() bool {
						st := h.feed.Status()
						return len(st) == 1 && st[0].Ranks[0].HasSeq && st[0].Ranks[0].LastSeq == last
					})
					q := &sglangPrompt{tokens: l.Query.Tokens, Request: prefixhash.Request{CacheSalt: l.Query.Salt, Namespace: l.Query.Space}}
					if l.Query.LoRA != nil {
						q.LoRA = prefixhash.LoRA{Name: *l.Query.LoRA, Set: true}
					}
					if got := h.hit(r, q); got != l.Cached {
						t.Fatalf("behind frame %d: %d tokens, SGLang found %d", last, got, l.Cached)
					}
					queries++
				}
			}
			if queries < 50 {
				t.Errorf("%d lookups", queries)
			}
		})
	}
}

// TestSGLangBesideVLLM: while another engine serves its model, prompts are rendered by that
// engine's rules, so no prediction for SGLang is called exact.
func TestSGLangBesideVLLM(t *testing.T) {
	h := newHarness(t)
	p := must.Get(kvtest.Start(kvtest.Options{Encoding: kvtest.Encoding{Generation: kvtest.Maps}}))(t)
	defer p.Close()
	p.Publish(kvtest.Event{Kind: kvtest.Stored, BlockSize: 1, Hashes: []uint64{1}, Tokens: []uint32{1}})
	models := []fleet.Model{{ID: "m", Base: "m"}}
	config := `{"format":"dynamo"}`
	h.feed.Join(&fleet.Replica{Addr: "10.0.0.1:30000", Ready: true, Reported: fleet.Reported{BlockSize: 1, Models: models, SGLang: &sglang.Server{Version: "0.5.23", PageSize: 1, Kinds: []string{"full"}, Config: &config}, Events: []fleet.EventSource{{Endpoint: p.Endpoint(), ReplayEndpoint: p.ReplayEndpoint()}}}, Ranks: []int{0}})
	trust := func() string {
		for _, r := range h.feed.Status() {
			if r.Addr == "10.0.0.1:30000" && r.Ranks[0].Groups != nil {
				return r.Ranks[0].Groups.Trust.String() + r.Ranks[0].Groups.Trust.Why
			}
		}
		return ""
	}
	h.until("it is trusted", func() bool { return trust() == "exact" })
	others := []*fleet.Replica{{Addr: "10.0.0.2:8000", Ready: true, Reported: fleet.Reported{Models: models}}, {Addr: "10.0.0.3:8000", Ready: true, Reported: fleet.Reported{Models: models}}}
	for _, r := range others {
		h.feed.Join(r)
		if got := trust(); !strings.HasPrefix(got, "inexactits model is also served by another engine") {
			t.Errorf("beside %s: %s", r.Addr, got)
		}
	}
	more := []*fleet.Replica{{Addr: "10.0.0.4:30000", Ready: true, Reported: fleet.Reported{Models: models, SGLang: &sglang.Server{}}}, {Addr: "10.0.0.5:30000", Ready: true, Reported: fleet.Reported{Models: models, SGLang: &sglang.Server{}}}}
	for i, r := range more {
		h.feed.Join(r)
		if got := trust(); (got == "exact") != (i == 1) {
			t.Errorf("with %d more of SGLang beside 2 others: %s", i+1, got)
		}
	}
	for _, r := range more {
		h.feed.Leave(r)
	}
	h.until("they have left", func() bool { return len(h.feed.Status()) == 3 && trust() != "exact" })
	for i, r := range others {
		h.feed.Leave(r)
		h.until("it is counted no more", func() bool { // which is after the status has it no more
			h.feed.mu.Lock()
			defer h.feed.mu.Unlock()
			return h.feed.engines["m"] == engines{sglang: 1, others: 1 - i}
		})
		if got := trust(); i == 0 && got == "exact" {
			t.Error("exact beside the second one")
		}
	}
	h.until("it is trusted again", func() bool { return trust() == "exact" })
}
