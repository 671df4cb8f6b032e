package feed

import (
	"context"
	"slices"
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// TestWhatASidecarCannotTellIsALimit: where a sidecar stands between, reports in
// full are never called exact.
func TestWhatASidecarCannotTellIsALimit(t *testing.T) {
	for _, c := range []struct {
		replica fleet.Replica
		limited bool
	}{
		{fleet.Replica{Configured: fleet.Configured{Sidecar: true}, Reported: fleet.Reported{Version: "0.32.0"}}, false},
		{fleet.Replica{Configured: fleet.Configured{Sidecar: true, KVReportFull: true}, Reported: fleet.Reported{Version: "0.32.0"}}, true},
		{fleet.Replica{Reported: fleet.Reported{Version: "0.32.0"}, Configured: fleet.Configured{KVReportFull: true}}, false},
	} {
		if got := groupSettings(&c.replica).Reports; got != c.replica.KVReportFull {
			t.Errorf("vLLM %s, full reports %v: told %v", c.replica.Version, c.replica.KVReportFull, got)
		}
		if got := groupSettings(&c.replica).Limit; (got != "") != c.limited {
			t.Errorf("sidecar %v, vLLM %s, full reports %v: %q", c.replica.Sidecar, c.replica.Version, c.replica.KVReportFull, got)
		}
	}
}

// TestDraftGroups: the groups that drop a block are known where the configuration names them, and
// where the replica's metrics show that no model drafts; the configuration comes first.
func TestDraftGroups(t *testing.T) {
	for _, c := range []struct {
		release, groups string
		draftless       bool
		eagle           uint32
		known           bool
	}{
		{"0.32.0", "", false, 0, false}, {"0.32.0", "", true, 0, true}, {"0.21.0", "", true, 0, false},
		{"0.32.0", "1", false, 2, true}, {"0.32.0", "1", true, 2, true}, {"0.32.0", "none", false, 0, true},
	} {
		told := groupSettings(&fleet.Replica{
			Configured: fleet.Configured{Cache: fleet.CacheOptions{DraftGroups: c.groups}}, Reported: fleet.Reported{Version: c.release, Draftless: c.draftless},
		})
		if told.Eagle != c.eagle || told.EagleKnown != c.known {
			t.Errorf("vLLM %s, draft_groups %q, draftless %t: groups %b, known %t", c.release, c.groups, c.draftless, told.Eagle, told.EagleKnown)
		}
	}
}

// TestAModelsFilesHaveItsChunk: the chunk in config.json holds for the replicas of that model,
// present and later ones.
func TestAModelsFilesHaveItsChunk(t *testing.T) {
	x := index.New(index.Options{})
	defer x.Close()
	f := New(x, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	join := func(addr, model string) {
		f.Join(&fleet.Replica{Addr: addr, Reported: fleet.Reported{Version: "0.32.0", Models: []fleet.Model{{ID: model, Base: model}}}, Configured: fleet.Configured{Cache: fleet.CacheOptions{DraftGroups: "none"}}})
		h := index.Holder{Replica: addr}
		b := &index.Batch{Holder: h, Incarnation: x.Begin(h)}
		for group, spec := range []string{"chunked_local_attention", "full_attention"} {
			b.Events = append(b.Events, index.Event{
				Kind: index.Stored, Hashes: []uint64{1}, Tokens: 16, Spec: spec,
				Scope: index.Scope{Model: model, Scheme: index.SchemeTokens, BlockSize: 16, Group: group},
			})
		}
		must.Get(x.Apply(b))(t)
	}
	known := func(addr, model string) bool {
		g, ok := x.ExplainGroups(x.ID(index.Holder{Replica: addr}), index.Scope{Model: model}, nil)
		return ok && !strings.Contains(g.Trust.Why, "chunk")
	}
	l := must.Get(cachelayout.Parse([]byte(`{"model_type": "llama4_text", "num_hidden_layers": 4}`)))(t)
	join("before", "m")
	join("other", "o")
	if known("before", "m") {
		t.Error("nothing is known, and the chunk is")
	}
	f.Layout("m", nil)
	f.Layout("m", l)
	join("after", "m")
	for _, addr := range []string{"before", "after"} {
		if !known(addr, "m") {
			t.Errorf("%s: the chunk is not known", addr)
		}
	}
	if known("other", "o") {
		t.Error("another model's replica has it")
	}
	f.Layout("m", nil) // its files are others now
	if known("before", "m") {
		t.Error("taken back, and known")
	}
	cancel()
	must.Do(t, <-done)
}

// TestNotesOfEvents: /readyz names replicas whose events have something unknown, and those whose
// blocks have another size than they report, the events' being the one that counts.
func TestNotesOfEvents(t *testing.T) {
	h := newHarness(t)
	h.feed.o.AdapterPath = func(_ context.Context, replica, name string, _ bool) string { return replica + "/" + name }
	p := must.Get(kvtest.Start(kvtest.Options{Encoding: kvtest.Encoding{Generation: kvtest.Maps}}))(t)
	defer p.Close()
	r := &fleet.Replica{Addr: "10.0.0.1:8000", Ready: true, Reported: fleet.Reported{BlockSize: 16, Models: []fleet.Model{{ID: "m", Base: "m"}}, Events: []fleet.EventSource{{Endpoint: p.Endpoint(), ReplayEndpoint: p.ReplayEndpoint()}}}, Ranks: []int{0}}
	h.feed.Join(r)
	h.until("synced", func() bool { return h.feed.Status()[0].Synced })
	if notes := h.feed.Notes(); len(notes) > 0 {
		t.Fatalf("notes %q", notes)
	}
	p.Publish(kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{1}, Tokens: make([]uint32, 32), BlockSize: 32}, kvtest.Event{Kind: "TierBlocksCleared"})
	p.Publish(kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{2}, Tokens: make([]uint32, 32), BlockSize: 32, LoRA: "ad"})
	h.until("the adapter's path", func() bool {
		for s := range h.index.Scopes() {
			if s.LoRA == (prefixhash.LoRA{Name: "ad", Path: r.Addr + "/ad", Set: true}) {
				return true
			}
		}
		return false
	})
	h.until("notes", func() bool { return len(h.feed.Notes()) == 2 })
	notes := strings.Join(h.feed.Notes(), "\n")
	for _, want := range []string{"10.0.0.1:8000, rank 0: matches are inexact: ", "TierBlocksCleared", "blocks of 32 tokens, and its settings or /metrics say 16: the events count"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in the notes:\n%s", want, notes)
		}
	}
	p.Publish(kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{3}, Tokens: make([]uint32, 32), BlockSize: 32, Group: new(1)})
	h.until("a note of groups of unknown kinds", func() bool {
		return slices.ContainsFunc(h.feed.Notes(), func(note string) bool {
			return strings.HasPrefix(note, "replica 10.0.0.1:8000, rank 0: its events do not name the kinds of its cache groups")
		})
	})
	before := len(h.feed.Notes())
	behind := index.Holder{Replica: "10.0.0.2:8000", Rank: 1}
	h.index.Begin(behind)
	h.index.SetDoubt(behind, "its sidecar says so")
	h.feed.Join(&fleet.Replica{Addr: behind.Replica, Configured: fleet.Configured{Sidecar: true}, Ready: true, Ranks: []int{0, 1}, Reported: fleet.Reported{Models: r.Models}})
	if notes := h.feed.Notes(); len(notes) != before+1 || !slices.Contains(notes, "replica 10.0.0.2:8000, rank 1: matches are inexact: its sidecar says so") {
		t.Errorf("with a sidecar's doubt the notes are %q", notes)
	}
}

// TestTheSettingsOfAReplicaLeaveWithIt: what another source reports under its address is another cache.
func TestTheSettingsOfAReplicaLeaveWithIt(t *testing.T) {
	x := index.New(index.Options{})
	defer x.Close()
	f := New(x, Options{})
	r := &fleet.Replica{Addr: "gone", Reported: fleet.Reported{Version: "0.32.0", Models: []fleet.Model{{ID: "m", Base: "m"}}}, Configured: fleet.Configured{Cache: fleet.CacheOptions{DraftGroups: "none"}}}
	f.Join(r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Do(t, f.Run(ctx))
	f.setGroups(r) // of a change of its model that began before it left
	trust := func(addr string) index.GroupTrust {
		h := index.Holder{Replica: addr}
		b := &index.Batch{Holder: h, Incarnation: x.Begin(h)}
		for group, spec := range []string{"sliding_window", "full_attention"} {
			b.Events = append(b.Events, index.Event{
				Kind: index.Stored, Hashes: []uint64{1}, Tokens: 16, Spec: spec, Window: 32,
				Scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: 16, Group: group},
			})
		}
		must.Get(x.Apply(b))(t)
		g, _ := x.ExplainGroups(x.ID(h), index.Scope{Model: "m"}, nil)
		return g.Trust
	}
	if got, want := trust("gone"), trust("never there"); got != want {
		t.Errorf("trust %+v, want that of a replica without settings: %+v", got, want)
	}
}
