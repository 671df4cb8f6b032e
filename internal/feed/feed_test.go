package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/sglang"
	"warmroute/internal/telemetry/metricstest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// harness is a feed over simulated replicas that publish over real sockets.
type harness struct {
	t     *testing.T
	index *index.Index
	feed  *Feed
	mu    sync.Mutex
	gone  []string
	busy  sync.Map      // index.Holder → struct{}: a call of Applied is under way
	slow  time.Duration // every call of Applied takes as long, so that a second one can come
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	return another(t)
}

// another is a second harness of the test.
func another(t *testing.T) *harness {
	t.Helper()
	x := index.New(index.Options{})
	h := &harness{t: t, index: x}
	h.feed = New(x, Options{Applied: h.applied, OnLeave: func(addr string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gone = append(h.gone, addr)
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(x.Close)
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	wg.Go(func() { _ = h.feed.Run(ctx) })
	return h
}

// applied fails the test when two calls for one holder overlap.
func (h *harness) applied(b *index.Batch) {
	if _, overlaps := h.busy.LoadOrStore(b.Holder, struct{}{}); overlaps {
		h.t.Errorf("two batches of %v at once", b.Holder)
	}
	time.Sleep(h.slow)
	h.busy.Delete(b.Holder)
}

// sim starts a simulated replica and returns it as the fleet would see it. seed is
// the PYTHONHASHSEED that the fleet is told, flags are vllmsim's.
func (h *harness) sim(seed *string, flags ...string) *fleet.Replica {
	h.t.Helper()
	s := testenv.StartSimulator(h.t, flags...)
	return &fleet.Replica{
		Addr: s.Addr, Ready: true, Reported: fleet.Reported{BlockSize: 16, Models: []fleet.Model{{ID: "sim", Base: "sim"}}, Events: []fleet.EventSource{{Endpoint: "tcp://" + s.Events, ReplayEndpoint: "tcp://" + s.Replay}}}, Ranks: []int{0}, Configured: fleet.Configured{HashSeed: seed},
	}
}

// complete sends a prompt of n token ids, none shared with another first.
func (h *harness) complete(r *fleet.Replica, first, n int) {
	h.t.Helper()
	ids := make([]int, n)
	for i := range ids {
		ids[i] = first*1000 + i
	}
	testenv.Post(h.t, "http://"+r.Addr+"/v1/completions", map[string]any{"model": "sim", "prompt": ids, "max_tokens": 1}).Into(h.t, nil)
}

func (h *harness) until(what string, ok func() bool) {
	h.t.Helper()
	testenv.Until(h.t, 20*time.Second, what, ok, func() any { return h.feed.Status() })
}

func (h *harness) holdings(addr string) int { return h.index.Holdings(index.Holder{Replica: addr}) }

func TestReplicasComeGoAndComeBack(t *testing.T) {
	h := newHarness(t)
	h.slow = 5 * time.Millisecond
	r := h.sim(nil)
	h.complete(r, 1, 64) // before anybody listens: learned by replay
	h.feed.Join(r)
	h.until("history is replayed", func() bool { return h.holdings(r.Addr) == 4 })
	h.until("synced", func() bool { st := h.feed.Status(); return len(st) == 1 && st[0].Synced })
	h.complete(r, 2, 64)
	h.until("live events", func() bool { return h.holdings(r.Addr) == 8 })
	h.feed.Leave(r)
	h.until("forgotten", func() bool { return h.holdings(r.Addr) == 0 && len(h.feed.Status()) == 0 })
	h.feed.Join(r) // at once, the same address
	h.until("known again", func() bool { return h.holdings(r.Addr) == 8 })
	h.feed.Leave(r)
	h.feed.Join(r) // before the departure is over
	h.until("known after a quick return", func() bool { return h.holdings(r.Addr) == 8 })
	h.until("two departures", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return slices.Equal(h.gone, []string{r.Addr, r.Addr}) })
}

// TestTheCacheOfASleeperIsEmpty: a replica that has discarded its cache tells of it with its next
// step, so what its replay brings is gone, and what comes then is there.
func TestTheCacheOfASleeperIsEmpty(t *testing.T) {
	h := newHarness(t)
	r := h.sim(nil)
	r.Empty = true
	h.complete(r, 1, 64)
	h.feed.Join(r)
	h.until("synced", func() bool { st := h.feed.Status(); return len(st) == 1 && st[0].Synced })
	h.until("the past is gone", func() bool { return h.holdings(r.Addr) == 0 })
	if n := h.feed.Status()[0].Ranks[0].BlocksStored; n != 4 {
		t.Errorf("%d blocks of the past were read, want 4", n)
	}
	h.complete(r, 2, 48)
	h.until("what came then is there", func() bool { return h.holdings(r.Addr) == 3 })
}

// TestHashesAreFound: the simulator computes vLLM's digests by itself; its events show which
// configuration it runs.
func TestHashesAreFound(t *testing.T) {
	seed := "42"
	for name, c := range map[string]struct {
		want  string
		seed  *string
		flags []string
	}{
		"sha256, default":  {"sha256", nil, nil},
		"sha256_cbor 0.21": {"sha256_cbor", &seed, []string{"-version", "0.21.0", "-hash", "sha256_cbor", "-hash-seed", seed}},
		"xxhash, bytes":    {"xxhash", &seed, []string{"-hash", "xxhash", "-hash-bytes", "-hash-seed", seed}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			r := h.sim(c.seed, c.flags...)
			h.feed.Join(r)
			h.until("synced", func() bool { return h.feed.Status()[0].Synced })
			h.complete(r, 1, 160)
			h.until("a verdict", func() bool { return h.feed.Status()[0].Ranks[0].Hashes != nil })
			if v := h.feed.Status()[0].Ranks[0].Hashes; v.Algorithm().String() != c.want || v.Seeded() != (c.seed != nil) {
				t.Errorf("found %v, want %s", v, c.want)
			}
		})
	}
}

func TestAnUnknownSeedIsNoMatch(t *testing.T) {
	h := newHarness(t)
	r := h.sim(nil, "-hash-seed", "a secret")
	h.feed.Join(r)
	h.until("synced", func() bool { return h.feed.Status()[0].Synced })
	h.complete(r, 1, 160)
	h.until("its blocks", func() bool { return h.holdings(r.Addr) == 10 && h.feed.Status()[0].Ranks[0].HasSeq })
	if v := h.feed.Status()[0].Ranks[0].Hashes; v != nil {
		t.Errorf("found %v", v)
	}
}

func TestAReplicaWithoutEventsIsSynced(t *testing.T) {
	h := newHarness(t)
	h.feed.Join(&fleet.Replica{Addr: "10.0.0.1:8000", Reported: fleet.Reported{Models: []fleet.Model{{ID: "m", Base: "m"}}}})
	st := h.feed.Status()
	if len(st) != 1 || !st[0].Synced || len(st[0].Ranks) != 0 {
		t.Errorf("status %+v", st)
	}
}

// Events that are not followed are told of: the endpoint is wrong, or pages' hashes cover no pages
// before them. The replica is usable without them.
func TestRefusedEventsAreSaid(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	models := []fleet.Model{{ID: "m", Base: "m"}}
	for why, reported := range map[string]fleet.Reported{
		"nonsense": {Models: models, Events: []fleet.EventSource{{Endpoint: "nonsense"}}},
		"0.5.6":    {Models: models, Events: []fleet.EventSource{{Endpoint: "tcp://127.0.0.1:1"}}, SGLang: &sglang.Server{Version: "0.5.5.post3"}},
	} {
		h, unfollowed := another(t), 0
		h.feed.o.Following = func(_ index.Holder, following bool) {
			if !following {
				unfollowed++
			}
		}
		h.feed.Join(&fleet.Replica{Addr: "10.0.0.1:8000", Reported: reported})
		if st := h.feed.Status(); st[0].Refused == nil || !strings.Contains(st[0].Refused.Error(), why) || !st[0].Synced || unfollowed != 1 {
			t.Errorf("%s: status %+v, not followed %d times", why, st, unfollowed)
		}
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	h := newHarness(t)
	r := h.sim(nil)
	h.feed.Join(r)
	h.until("synced", func() bool { return h.feed.Status()[0].Synced })
	reg := prometheus.NewRegistry()
	reg.MustRegister(h.feed)
	metricstest.Lint(t, reg)
}

// TestBehindNamesWhoIsWaitedFor: a publisher that is not there is waited for
// until SyncTimeout, by a clock that the test turns, whatever others have done.
func TestBehindNamesWhoIsWaitedFor(t *testing.T) {
	x := index.New(index.Options{})
	defer x.Close()
	var late atomic.Int64
	f := New(x, Options{SyncTimeout: time.Hour, Now: func() time.Time { return time.Unix(late.Load(), 0) }})
	f.Join(&fleet.Replica{Addr: "10.0.0.1:8000"})
	if addr, behind := f.Behind(); behind {
		t.Errorf("%s is waited for, which publishes nothing", addr)
	}
	f.Join(&fleet.Replica{
		Addr: "10.0.0.2:8000", Reported: fleet.Reported{Models: []fleet.Model{{ID: "m", Base: "m"}}, Events: []fleet.EventSource{{Endpoint: "ipc:///nonexistent"}}},
	})
	if addr, behind := f.Behind(); !behind || addr != "10.0.0.2:8000" || f.Status()[1].Synced {
		t.Errorf("behind %q, %v", addr, behind)
	}
	late.Store(3601)
	if addr, behind := f.Behind(); behind || !f.Status()[1].Synced {
		t.Errorf("%s is still waited for after an hour", addr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = f.Run(ctx) // ends the subscription
}

// TestAReplicaOfGarbageIsNamed: a publisher whose batches are refused again and
// again is left alone, and the notes and metrics say so.
func TestAReplicaOfGarbageIsNamed(t *testing.T) {
	h := newHarness(t)
	p, r := publisher(t, "10.0.0.1:8000", kvtest.Options{})
	h.feed.Join(r)
	h.until("it is followed", func() bool { return h.feed.Status()[0].Synced })
	h.until("it is left alone", func() bool {
		p.PublishRaw([]byte("no msgpack"))
		notes := h.feed.Notes()
		return len(notes) == 1 && strings.Contains(notes[0], "10.0.0.1:8000, rank 0") && strings.Contains(notes[0], "payload")
	})
	reg := prometheus.NewRegistry()
	reg.MustRegister(h.feed)
	families := must.Get(reg.Gather())(t)
	for _, f := range families {
		if f.GetName() != "warmroute_kv_interruptions_total" {
			continue
		}
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == "pause" && m.GetCounter().GetValue() > 0 {
				return
			}
		}
	}
	t.Error("no metric counts the pause")
}

// TestALostBatchIsNamed: one batch that cannot be read costs all known blocks; the notes say which.
func TestALostBatchIsNamed(t *testing.T) {
	h := newHarness(t)
	p, r := publisher(t, "10.0.0.1:8000", kvtest.Options{})
	h.feed.Join(r)
	p.Publish(prompt(1, 4))
	h.until("it is followed", func() bool { return h.holdings(r.Addr) == 4 })
	if notes := h.feed.Notes(); len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
	p.PublishRaw(kvtest.Pack([]any{1.0, []any{map[string]any{"type": "BlockStored", "block_hashes": []any{9}, "parent_block_hash": nil, "token_ids": []any{1, 2}, "block_size": 2.0}}, 0}))
	h.until("its blocks are dropped", func() bool { return h.holdings(r.Addr) == 0 })
	p.Publish(prompt(1, 4))
	h.until("it is followed again", func() bool { return h.holdings(r.Addr) == 4 })
	if notes := h.feed.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "10.0.0.1:8000, rank 0: a batch of its KV events could not be read") || !strings.Contains(notes[0], "block_size") {
		t.Errorf("notes %q", notes)
	}
}

// TestSwappedRanksAreNamed: batches name another rank than the one whose endpoint is configured. A node's
// ranks may begin with another number.
func TestSwappedRanksAreNamed(t *testing.T) {
	for _, said := range [][]int{{0, 1}, {2, 3}, {1, 0}, {0, 0}} {
		t.Run(fmt.Sprint(said), func(t *testing.T) {
			h := newHarness(t)
			first, r := publisher(t, "10.0.0.1:8000", kvtest.Options{Rank: said[0]})
			second, other := publisher(t, "", kvtest.Options{Rank: said[1]})
			r.Ranks, r.Events = []int{0, 1}, append(r.Events, other.Events...)
			r.Events[1].Rank = 1
			h.feed.Join(r)
			first.Publish(prompt(1, 4))
			followed := func(rank int) func() bool { // the status follows the index
				return func() bool { return h.feed.Status()[0].Ranks[rank].HasSeq }
			}
			h.until("the first is followed", followed(0))
			if notes := h.feed.Notes(); len(notes) > 0 {
				t.Errorf("notes %q of one rank alone", notes)
			}
			second.Publish(prompt(100, 2))
			h.until("both are followed", followed(1))
			want := fmt.Sprintf("replica 10.0.0.1:8000: the KV events of rank 0 say that they are of rank %d, and those of rank 1 of %d", said[0], said[1])
			notes := h.feed.Notes()
			if ordered := said[1] == said[0]+1; ordered && len(notes) > 0 || !ordered && (len(notes) != 1 || !strings.HasPrefix(notes[0], want)) {
				t.Errorf("notes %q", notes)
			}
		})
	}
}
